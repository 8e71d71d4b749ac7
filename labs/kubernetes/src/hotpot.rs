//! What hotpot's controller needs of a cluster, where no chart has installed it: its class of devices, and cards that are objects
//! alone like their nodes.

/// The class of hotpot's devices: the stock scheduler never chooses one by itself.
pub const CLASS: &str = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu.hotpot.dev}\nspec:\n  \
                         selectors: [{cel: {expression: \"device.driver == 'gpu.hotpot.dev' && false\"}}]\n  \
                         config: [{opaque: {driver: gpu.hotpot.dev, parameters: {apiVersion: hotpot.dev/v1, kind: GpuShare}}}]\n---\n";

/// A node's slice with one card of 80 GiB.
#[must_use]
pub fn slice(node: &str) -> String {
    let attributes = format!(
        "{{type: {{string: card}}, uuid: {{string: GPU-{node}}}, model: {{string: a100-80gb}}, index: {{int: 0}}, \
         memoryCap: {{string: cooperative}}, computeCap: {{string: cooperative}}, mps: {{bool: true}}, mig: {{bool: false}}}}"
    );
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: {node}-gpu}}\nspec:\n  driver: gpu.hotpot.dev\n  \
         nodeName: {node}\n  pool: {{name: {node}, generation: 1, resourceSliceCount: 1}}\n  devices:\n  - name: gpu-{node}\n    \
         allowMultipleAllocations: true\n    attributes: {attributes}\n    \
         capacity: {{memory: {{value: 80Gi}}, compute: {{value: \"1\"}}}}\n---\n"
    )
}
