//! The kubelet's protocols, made of the descriptions in `proto/`.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::too_many_lines,
    clippy::allow_attributes_without_reason,
    clippy::missing_errors_doc,
    clippy::wildcard_enum_match_arm,
    reason = "made by a program; the descriptions say what things are"
)]

pub mod registration {
    tonic::include_proto!("pluginregistration");
}

pub mod v1 {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
}

pub mod v1beta1 {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1beta1");
}

pub mod health {
    tonic::include_proto!("v1alpha1");
}

pub mod pod_resources {
    tonic::include_proto!("v1");
}

pub mod cri {
    tonic::include_proto!("runtime.v1");
}
