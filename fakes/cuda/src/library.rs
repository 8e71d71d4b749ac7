//! Libraries and kernels: images that belong to no context, and are loaded into each that uses them.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};

use crate::calls::{Call, exports};
use crate::driver::Driver;
use crate::handles::Handle;
use crate::image::Image;
use crate::module::read_file;
use crate::pointers::{get_text, put, put_if};
use crate::result::{Error, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, Outcome};

/// A library.
pub(crate) struct Library {
    image: Image,
    /// Its modules by context.
    modules: BTreeMap<Handle, Handle>,
    kernels: BTreeMap<String, Handle>,
}

/// A kernel of a library.
pub(crate) struct Kernel {
    library: Handle,
    name: String,
    c_name: CString,
}

impl Driver {
    fn kernel(&self, handle: Handle) -> Result<&Kernel, Error> {
        self.kernels.get(handle).ok_or(INVALID_HANDLE)
    }

    fn library(&self, handle: Handle) -> Result<&Library, Error> {
        self.libraries.get(handle).ok_or(INVALID_HANDLE)
    }

    fn kernel_of(&mut self, handle: Handle, name: &str) -> Result<Handle, Error> {
        let library = self.library(handle)?;
        if let Some(kernel) = library.kernels.get(name) {
            return Ok(*kernel);
        }
        let known = |entries: &Vec<crate::image::Entry>| entries.iter().any(|e| e.name == name);
        if !library.image.entries.as_ref().is_none_or(known) {
            return Err(NOT_FOUND);
        }
        let c_name = CString::new(name).map_err(|_| INVALID_VALUE)?;
        let kernel = Kernel { library: handle, name: name.to_string(), c_name };
        let kernel = self.kernels.insert(kernel);
        if let Some(library) = self.libraries.get_mut(handle) {
            library.kernels.insert(name.to_string(), kernel);
        }
        Ok(kernel)
    }
}

impl Call {
    /// A library's module in a context, which is loaded at first.
    fn module_in(
        &self,
        driver: &mut Driver,
        library: Handle,
        context: Handle,
    ) -> Result<Handle, Error> {
        let found = driver.library(library)?;
        let loaded = found.modules.get(&context).copied();
        if let Some(module) = loaded.filter(|module| driver.modules.get(*module).is_some()) {
            return Ok(module);
        }
        let module = self.load(driver, context, found.image.clone())?;
        if let Some(library) = driver.libraries.get_mut(library) {
            library.modules.insert(context, module);
        }
        Ok(module)
    }

    /// The function that a handle of a function or a kernel means in a context.
    pub(crate) fn function_in(
        &self,
        driver: &mut Driver,
        handle: Handle,
        context: Handle,
    ) -> Result<Handle, Error> {
        if driver.functions.get(handle).is_some() {
            return Ok(handle);
        }
        let kernel = driver.kernel(handle)?;
        let (library, name) = (kernel.library, kernel.name.clone());
        let module = self.module_in(driver, library, context)?;
        driver.function_of(module, &name)
    }

    /// As [`Call::function_in`] for the current context.
    pub(crate) fn function_here(&self, handle: Handle) -> Result<Handle, Error> {
        let mut driver = self.lock();
        if driver.functions.get(handle).is_some() {
            return Ok(handle);
        }
        let context = self.current(&driver)?.0;
        self.function_in(&mut driver, handle, context)
    }

    fn add_library(&self, to: *mut Handle, image: Image) -> Outcome {
        let library = Library { image, modules: BTreeMap::new(), kernels: BTreeMap::new() };
        put(to, self.lock().libraries.insert(library))
    }

    fn variable(&self, to: *mut u64, bytes: *mut usize, library: Handle, name: &str) -> Outcome {
        let mut driver = self.lock();
        let context = self.current(&driver)?.0;
        let module = self.module_in(&mut driver, library, context)?;
        let (address, size) = driver.variable_of(module, name)?;
        put_if(to, address);
        put_if(bytes, size as usize);
        Ok(())
    }
}

exports! { LIBRARY;
    "cuLibraryLoadData" 12000 call fn cuLibraryLoadData(
        to: *mut Handle, image: *const c_void, _options: *const u32, _values: *const *mut c_void,
        _count: u32, _library_options: *const u32, _library_values: *const *mut c_void,
        _library_count: u32,
    ) |call| {
        if image.is_null() || to.is_null() { return Err(INVALID_VALUE) }
        call.add_library(to, Image::at(image))
    }

    "cuLibraryLoadFromFile" 12000 call fn cuLibraryLoadFromFile(
        to: *mut Handle, file: *const c_char, _options: *const u32, _values: *const *mut c_void,
        _count: u32, _library_options: *const u32, _library_values: *const *mut c_void,
        _library_count: u32,
    ) |call| { call.add_library(to, read_file(file)?) }

    "cuLibraryUnload" 12000 call fn cuLibraryUnload(library: Handle) |call| {
        let mut driver = call.lock();
        let gone = driver.libraries.remove(library).ok_or(INVALID_HANDLE)?;
        for kernel in gone.kernels.into_values() {
            driver.kernels.remove(kernel);
        }
        for module in gone.modules.into_values() {
            call.unload(&mut driver, module);
        }
        Ok(())
    }

    "cuLibraryGetKernel" 12000 call fn cuLibraryGetKernel(
        to: *mut Handle, library: Handle, name: *const c_char,
    ) |call| { put(to, call.lock().kernel_of(library, &get_text(name)?)?) }

    "cuLibraryGetKernelCount" 12040 call fn cuLibraryGetKernelCount(to: *mut u32, library: Handle)
    |call| {
        let driver = call.lock();
        let entries = driver.library(library)?.image.entries.as_ref().map_or(0, Vec::len);
        put(to, u32::try_from(entries).unwrap_or(u32::MAX))
    }

    "cuLibraryEnumerateKernels" 12040 call fn cuLibraryEnumerateKernels(
        to: *mut Handle, room: u32, library: Handle,
    ) |call| {
        let mut driver = call.lock();
        let entries = driver.library(library)?.image.entries.clone().unwrap_or_default();
        for (at, entry) in entries.iter().take(room as usize).enumerate() {
            let kernel = driver.kernel_of(library, &entry.name)?;
            put(to.wrapping_add(at), kernel)?;
        }
        Ok(())
    }

    "cuLibraryGetModule" 12000 call fn cuLibraryGetModule(to: *mut Handle, library: Handle) |call| {
        let mut driver = call.lock();
        let context = call.current(&driver)?.0;
        put(to, call.module_in(&mut driver, library, context)?)
    }

    "cuLibraryGetGlobal" 12000 call fn cuLibraryGetGlobal(
        to: *mut u64, bytes: *mut usize, library: Handle, name: *const c_char,
    ) |call| { call.variable(to, bytes, library, &get_text(name)?) }

    "cuLibraryGetManaged" 12000 call fn cuLibraryGetManaged(
        _to: *mut u64, _bytes: *mut usize, library: Handle, _name: *const c_char,
    ) |call| {
        call.lock().library(library)?;
        Err(NOT_FOUND)
    }

    "cuKernelGetFunction" 12000 call fn cuKernelGetFunction(to: *mut Handle, kernel: Handle) |call| {
        call.lock().kernel(kernel)?;
        put(to, call.function_here(kernel)?)
    }

    "cuKernelGetLibrary" 12050 call fn cuKernelGetLibrary(to: *mut Handle, kernel: Handle) |call| {
        put(to, call.lock().kernel(kernel)?.library)
    }

    "cuKernelGetName" 12030 call fn cuKernelGetName(to: *mut *const c_char, kernel: Handle) |call| {
        put(to, call.lock().kernel(kernel)?.c_name.as_ptr())
    }

    "cuKernelGetAttribute" 12000 call fn cuKernelGetAttribute(
        to: *mut c_int, attribute: u32, kernel: Handle, _device: c_int,
    ) |call| {
        let function = call.function_here(kernel)?;
        put(to, call.lock().function(function)?.attribute(attribute)?)
    }

    "cuKernelSetAttribute" 12000 call fn cuKernelSetAttribute(
        attribute: u32, value: c_int, kernel: Handle, _device: c_int,
    ) |call| {
        let function = call.function_here(kernel)?;
        call.lock().function_mut(function)?.set_attribute(attribute, value)
    }

    "cuKernelSetCacheConfig" 12000 call fn cuKernelSetCacheConfig(
        kernel: Handle, _config: u32, _device: c_int,
    ) |call| { call.lock().kernel(kernel).map(|_| ()) }

    "cuKernelGetParamInfo" 12040 call fn cuKernelGetParamInfo(
        kernel: Handle, index: usize, offset: *mut usize, size: *mut usize,
    ) |call| {
        let function = call.function_here(kernel)?;
        call.parameter(function, index, offset, size)
    }

    "cuKernelGetParamCount" 13020 call fn cuKernelGetParamCount(kernel: Handle, to: *mut usize)
    |call| {
        let function = call.function_here(kernel)?;
        put(to, call.lock().function(function)?.parameter_count())
    }
}
