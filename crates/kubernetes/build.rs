//! Makes Rust of what the kubelet speaks.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["registration", "dra_v1", "dra_v1beta1", "health", "cri", "pod_resources"]
        .map(|name| format!("proto/{name}.proto"));
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
