//! Who is who to the API server: a certificate authority of the cluster's own, a certificate for each of its parts, and the
//! files by which clients find the server.

use std::path::PathBuf;

use lab_base::{LabError, Place};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

use crate::conf::{API_ADDRESS, API_PORT, SERVICE_ADDRESS};
use crate::options::Options;

/// Makes everything that lies in `keys`.
pub(crate) fn make(place: &Place, options: &Options) -> Result<(), LabError> {
    let ca = Authority::make(place, "ca")?;
    ca.sign(&Party {
        file: "apiserver",
        user: "kube-apiserver",
        group: None,
        names: server_names(),
    })?;
    let group = Some("system:masters");
    ca.sign(&Party {
        file: "apiserver-client",
        user: "kube-apiserver-client",
        group,
        names: Vec::new(),
    })?;
    ca.client("admin", "admin", group)?;
    ca.client("scheduler", "system:kube-scheduler", None)?;
    ca.client("controllers", "system:kube-controller-manager", None)?;
    ca.client("proxy", "system:kube-proxy", None)?;
    for node in options.all_nodes() {
        ca.client(&node, &format!("system:node:{node}"), Some("system:nodes"))?;
    }
    let front = Authority::make(place, "front-ca")?;
    front.sign(&Party {
        file: "front",
        user: "front-proxy-client",
        group: None,
        names: Vec::new(),
    })?;
    accounts(place)
}

/// Signs everybody's certificates.
struct Authority<'a> {
    place: &'a Place,
    issuer: Issuer<'static, KeyPair>,
}

/// Somebody with a certificate.
struct Party<'a> {
    /// Of the files, without ending.
    file: &'a str,
    /// As the API server sees it.
    user: &'a str,
    /// Its group, if any.
    group: Option<&'a str>,
    /// By which it is called, if it serves.
    names: Vec<String>,
}

impl<'a> Authority<'a> {
    /// Makes the authority; its certificate is `keys/NAME.crt`.
    fn make(place: &'a Place, name: &str) -> Result<Self, LabError> {
        let key = KeyPair::generate().map_err(|error| said(&error))?;
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).map_err(|error| said(&error))?;
        place.write(&format!("keys/{name}.crt"), &certificate.pem(), false)?;
        Ok(Self { place, issuer: Issuer::new(params, key) })
    }

    /// Makes a certificate and its key: `keys/FILE.crt`, `keys/FILE.key`.
    fn sign(&self, party: &Party<'_>) -> Result<(), LabError> {
        let key = KeyPair::generate().map_err(|error| said(&error))?;
        let params = CertificateParams::new(party.names.clone());
        let mut params = params.map_err(|error| said(&error))?;
        params.distinguished_name = distinguished(party.user, party.group);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer).map_err(|error| said(&error))?;
        self.place.write(&format!("keys/{}.crt", party.file), &certificate.pem(), false)?;
        self.place.write_secret(&format!("keys/{}.key", party.file), key.serialize_pem().as_bytes())
    }

    /// Makes a certificate and the file by which a client of that name finds the server: `keys/FILE.kubeconfig`.
    fn client(&self, file: &str, user: &str, group: Option<&str>) -> Result<(), LabError> {
        self.sign(&Party { file, user, group, names: Vec::new() })?;
        let path = |name: &str| self.place.path(name).display().to_string();
        let (ca, certificate, key) = (
            path("keys/ca.crt"),
            path(&format!("keys/{file}.crt")),
            path(&format!("keys/{file}.key")),
        );
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: lab\n\
             contexts:\n- name: lab\n  context: {{cluster: lab, user: {file}}}\n\
             clusters:\n- name: lab\n  cluster:\n    server: https://{API_ADDRESS}:{API_PORT}\n    certificate-authority: {ca}\n\
             users:\n- name: {file}\n  user:\n    client-certificate: {certificate}\n    client-key: {key}\n"
        );
        self.place.write_secret(&kubeconfig(file), text.as_bytes())
    }
}

/// By which the API server is called, from the host's side and from pods.
fn server_names() -> Vec<String> {
    let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let addresses = ["127.0.0.1", API_ADDRESS, SERVICE_ADDRESS];
    names.into_iter().chain(addresses).map(str::to_owned).collect()
}

/// The file by which a client finds the server, in the cluster's folder.
pub(crate) fn kubeconfig(file: &str) -> String {
    format!("keys/{file}.kubeconfig")
}

/// The key that signs tokens of service accounts: `keys/accounts.key`, and its public half, `.pub`.
fn accounts(place: &Place) -> Result<(), LabError> {
    let key = KeyPair::generate().map_err(|error| said(&error))?;
    place.write_secret("keys/accounts.key", key.serialize_pem().as_bytes())?;
    place.write("keys/accounts.pub", &key.public_key_pem(), false)
}

/// The path of a key or certificate.
pub(crate) fn path(place: &Place, name: &str) -> PathBuf {
    place.path("keys").join(name)
}

fn distinguished(user: &str, group: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, user);
    if let Some(group) = group {
        name.push(DnType::OrganizationName, group);
    }
    name
}

fn said(error: &rcgen::Error) -> LabError {
    LabError::Failed { line: "making a certificate".into(), why: error.to_string() }
}
