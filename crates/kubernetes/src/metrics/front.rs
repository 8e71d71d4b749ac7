//! Who may ask: the API server's aggregation layer, which has asked who the caller is and whether that one may, and shows a certificate of
//! its own authority. Which authority and which names, each cluster says in a ConfigMap (Kubernetes' documentation, "Configure the
//! Aggregation Layer").

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::https::listen::Caller;

const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";
const AUTHORITY: &str = "requestheader-client-ca-file";
const NAMES: &str = "requestheader-allowed-names";
/// How often the ConfigMap is looked at.
const PERIOD: Duration = Duration::from_secs(60);
/// How soon again after something went wrong.
const AGAIN: Duration = Duration::from_secs(2);

/// How the aggregation layer is known. The default knows nobody.
#[derive(Clone, Debug, Default)]
pub(super) struct Front {
    /// Takes certificates of its authority, and callers without any, of whom nothing is known.
    pub(super) verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// Its names; any, if there are none.
    names: Vec<String>,
}

impl Front {
    /// * `data` — of the ConfigMap.
    ///
    /// # Errors
    /// What cannot be understood.
    fn of(data: &BTreeMap<String, String>) -> Result<Self, String> {
        let authority = data.get(AUTHORITY).ok_or_else(|| {
            format!("it has no {AUTHORITY}: the API server has no --requestheader-client-ca-file, so that nobody can be known")
        })?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            let certificate = certificate.map_err(|error| format!("{AUTHORITY}: {error}"))?;
            roots.add(certificate).map_err(|error| format!("{AUTHORITY}: {error}"))?;
        }
        let provider = Arc::new(default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|error| format!("{AUTHORITY}: {error}"))?;
        let names = data.get(NAMES).map_or("[]", String::as_str);
        let names = serde_json::from_str(names).map_err(|error| format!("{NAMES}: {error}"))?;
        Ok(Self { verifier: Some(verifier), names })
    }

    /// Whether it is the aggregation layer that calls.
    ///
    /// * `caller` — a certificate that the verifier has found good.
    pub(super) fn knows(&self, caller: &Caller) -> bool {
        let (Some(_), Some(certificate)) = (&self.verifier, caller) else { return false };
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
        let mut called =
            certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        self.names.is_empty() || called.any(|name| self.names.iter().any(|known| known == name))
    }
}

/// Keeps up with the ConfigMap for ever; what goes wrong is said once.
pub(super) async fn keep(client: &Client, front: &watch::Sender<Front>, say: fn(&str)) {
    let mut said = String::new();
    loop {
        let read = read(client).await;
        let pause = if read.is_ok() { PERIOD } else { AGAIN };
        let why = match read {
            Ok(read) => {
                front.send_replace(read);
                String::new()
            }
            Err(why) => format!("configmap {NAMESPACE}/{CONFIG_MAP}: {why}"),
        };
        if why != said && !why.is_empty() {
            say(&why);
        }
        said = why;
        tokio::time::sleep(pause).await;
    }
}

async fn read(client: &Client) -> Result<Front, String> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let found = api.get(CONFIG_MAP).await.map_err(|error| error.to_string())?;
    Front::of(&found.data.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    /// A certificate with a name; who has signed it is the verifier's business.
    fn caller(name: &str) -> Caller {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        Some(Arc::from(certificate.der().as_ref()))
    }

    fn front(names: &str) -> Result<Front, String> {
        let authority = CertificateParams::default().self_signed(&KeyPair::generate().unwrap());
        let authority = authority.unwrap().pem();
        Front::of(&[(AUTHORITY.to_owned(), authority), (NAMES.to_owned(), names.to_owned())].into())
    }

    #[test]
    fn only_who_is_called_as_the_cluster_says_is_known() {
        let named = front(r#"["front-proxy-client"]"#).unwrap();
        assert!(named.knows(&caller("front-proxy-client")));
        assert!(!named.knows(&caller("front-proxy-client2")));
        assert!(!named.knows(&None));
        assert!(!named.knows(&Some(Arc::from(&b"no certificate"[..]))));
        assert!(front("[]").unwrap().knows(&caller("anybody")));
        assert!(!Front::default().knows(&caller("front-proxy-client")));
    }

    #[test]
    fn without_an_authority_nobody_is_known() {
        assert!(
            Front::of(&BTreeMap::new()).unwrap_err().contains("--requestheader-client-ca-file")
        );
        let none = [(AUTHORITY.to_owned(), String::new())].into();
        assert!(Front::of(&none).is_err());
        assert!(front("no list").unwrap_err().contains(NAMES));
    }
}
