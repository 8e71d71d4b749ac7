//! Functions that the driver has and this one does not: they are found and fail.

use crate::calls::exports;
use crate::result::NOT_SUPPORTED;

// Their parameters are not read; with the C calling convention a function may have fewer than it is
// given. What green contexts are made of, multicast, textures, semaphores of other interfaces and linking.
exports! { UNSUPPORTED;
    "cuArrayGetPlane" 11020 call fn cuArrayGetPlane() |_| { Err(NOT_SUPPORTED) }

    "cuArrayGetSparseProperties" 11010 call fn cuArrayGetSparseProperties() |_| { Err(NOT_SUPPORTED) }

    "cuMipmappedArrayGetSparseProperties" 11010 call fn cuMipmappedArrayGetSparseProperties() |_| { Err(NOT_SUPPORTED) }

    "cuMemMapArrayAsync" 11010 call [cuMemMapArrayAsync_ptsz 11010] fn cuMemMapArrayAsync() |_| { Err(NOT_SUPPORTED) }

    "cuCtxGetDevResource" 12040 call fn cuCtxGetDevResource() |_| { Err(NOT_SUPPORTED) }

    "cuDevResourceGenerateDesc" 12040 call fn cuDevResourceGenerateDesc() |_| { Err(NOT_SUPPORTED) }

    "cuDevSmResourceSplit" 13010 call fn cuDevSmResourceSplit() |_| { Err(NOT_SUPPORTED) }

    "cuDevSmResourceSplitByCount" 12040 call fn cuDevSmResourceSplitByCount() |_| { Err(NOT_SUPPORTED) }

    "cuStreamGetDevResource" 13010 call [cuStreamGetDevResource_ptsz 13010] fn cuStreamGetDevResource() |_| { Err(NOT_SUPPORTED) }

    "cuGreenCtxGetDevResource" 12040 call fn cuGreenCtxGetDevResource() |_| { Err(NOT_SUPPORTED) }

    "cuGreenCtxGetId" 12090 call fn cuGreenCtxGetId() |_| { Err(NOT_SUPPORTED) }

    "cuGreenCtxRecordEvent" 12040 call fn cuGreenCtxRecordEvent() |_| { Err(NOT_SUPPORTED) }

    "cuGreenCtxStreamCreate" 12050 call fn cuGreenCtxStreamCreate() |_| { Err(NOT_SUPPORTED) }

    "cuGreenCtxWaitEvent" 12040 call fn cuGreenCtxWaitEvent() |_| { Err(NOT_SUPPORTED) }

    "cuImportExternalSemaphore" 10000 call fn cuImportExternalSemaphore() |_| { Err(NOT_SUPPORTED) }

    "cuDestroyExternalSemaphore" 10000 call fn cuDestroyExternalSemaphore() |_| { Err(NOT_SUPPORTED) }

    "cuSignalExternalSemaphoresAsync" 10000 call [cuSignalExternalSemaphoresAsync_ptsz 10000] fn cuSignalExternalSemaphoresAsync() |_| { Err(NOT_SUPPORTED) }

    "cuWaitExternalSemaphoresAsync" 10000 call [cuWaitExternalSemaphoresAsync_ptsz 10000] fn cuWaitExternalSemaphoresAsync() |_| { Err(NOT_SUPPORTED) }

    "cuExternalMemoryGetMappedMipmappedArray" 10000 call fn cuExternalMemoryGetMappedMipmappedArray() |_| { Err(NOT_SUPPORTED) }

    "cuMulticastCreate" 12010 call fn cuMulticastCreate() |_| { Err(NOT_SUPPORTED) }

    "cuMulticastAddDevice" 12010 call fn cuMulticastAddDevice() |_| { Err(NOT_SUPPORTED) }

    "cuMulticastBindMem" 12010 call fn cuMulticastBindMem() |_| { Err(NOT_SUPPORTED) }

    "cuMulticastBindAddr" 12010 call fn cuMulticastBindAddr() |_| { Err(NOT_SUPPORTED) }

    "cuMulticastUnbind" 12010 call fn cuMulticastUnbind() |_| { Err(NOT_SUPPORTED) }

    "cuMulticastGetGranularity" 12010 call fn cuMulticastGetGranularity() |_| { Err(NOT_SUPPORTED) }

    "cuTexObjectCreate" 5000 call fn cuTexObjectCreate() |_| { Err(NOT_SUPPORTED) }

    "cuTexObjectDestroy" 5000 call fn cuTexObjectDestroy() |_| { Err(NOT_SUPPORTED) }

    "cuSurfObjectCreate" 5000 call fn cuSurfObjectCreate() |_| { Err(NOT_SUPPORTED) }

    "cuSurfObjectDestroy" 5000 call fn cuSurfObjectDestroy() |_| { Err(NOT_SUPPORTED) }

    "cuTensorMapEncodeTiled" 12000 call fn cuTensorMapEncodeTiled() |_| { Err(NOT_SUPPORTED) }

    "cuTensorMapEncodeIm2col" 12000 call fn cuTensorMapEncodeIm2col() |_| { Err(NOT_SUPPORTED) }

    "cuTensorMapReplaceAddress" 12000 call fn cuTensorMapReplaceAddress() |_| { Err(NOT_SUPPORTED) }

    "cuMemGetHandleForAddressRange" 11070 call fn cuMemGetHandleForAddressRange() |_| { Err(NOT_SUPPORTED) }

    "cuMemBatchDecompressAsync" 12060 call [cuMemBatchDecompressAsync_ptsz 12060] fn cuMemBatchDecompressAsync() |_| { Err(NOT_SUPPORTED) }

    "cuLibraryGetUnifiedFunction" 12000 call fn cuLibraryGetUnifiedFunction() |_| { Err(NOT_SUPPORTED) }

    "cuGraphConditionalHandleCreate" 12030 call fn cuGraphConditionalHandleCreate() |_| { Err(NOT_SUPPORTED) }

    "cuLinkCreate" 6050 call fn cuLinkCreate_v2() |_| { Err(NOT_SUPPORTED) }

    "cuLinkAddData" 6050 call fn cuLinkAddData_v2() |_| { Err(NOT_SUPPORTED) }

    "cuLinkAddFile" 6050 call fn cuLinkAddFile_v2() |_| { Err(NOT_SUPPORTED) }

    "cuLinkComplete" 5050 call fn cuLinkComplete() |_| { Err(NOT_SUPPORTED) }

    "cuLinkDestroy" 5050 call fn cuLinkDestroy() |_| { Err(NOT_SUPPORTED) }

    "cuDeviceRegisterAsyncNotification" 12040 call fn cuDeviceRegisterAsyncNotification() |_| { Err(NOT_SUPPORTED) }

    "cuDeviceUnregisterAsyncNotification" 12040 call fn cuDeviceUnregisterAsyncNotification() |_| { Err(NOT_SUPPORTED) }

    "cuCtxRecordEvent" 12050 call fn cuCtxRecordEvent() |_| { Err(NOT_SUPPORTED) }

    "cuCtxWaitEvent" 12050 call fn cuCtxWaitEvent() |_| { Err(NOT_SUPPORTED) }
}
