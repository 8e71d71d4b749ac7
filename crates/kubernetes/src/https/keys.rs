//! A server's certificates: an authority of its own that signs one and is forgotten, so that nobody else can have one. Pure but for
//! what is drawn at random.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// Life of a certificate: a year.
const LIFE_MS: i64 = 365 * 24 * 3600 * 1000;
/// Clocks may be behind ours by so much.
const BEFORE_MS: i64 = 3600 * 1000;
/// Parts of a Secret.
const CA: &str = "ca.crt";
const CA_BEFORE: &str = "ca-before.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const MADE: &str = "made.json";

/// A certificate, its key and its authority, all as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    ca: String,
    /// The authority before, which replicas may still be served by.
    ca_before: Option<String>,
    certificate: String,
    key: String,
    made: Made,
}

/// For whom and when it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    names: Vec<String>,
    /// In ms since 1970.
    at_ms: i64,
    until_ms: i64,
}

/// What connections are served by.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) tls: Arc<ServerConfig>,
    certificate: String,
}

impl Keys {
    /// Makes new ones.
    ///
    /// * `names` — by which the server is called: DNS names and addresses; `before` — the keys that these replace.
    ///
    /// # Errors
    /// A name cannot stand in a certificate.
    pub(crate) fn make(
        names: &[String],
        before: Option<&Self>,
        now_ms: i64,
    ) -> Result<Self, String> {
        // Replicas that are told different names do not replace each other's for ever.
        let mut all = names.to_vec();
        let known = before.iter().flat_map(|before| &before.made.names);
        all.extend(known.filter(|name| !names.contains(name)).cloned());
        let made = Made { names: all, at_ms: now_ms, until_ms: now_ms.saturating_add(LIFE_MS) };
        let (ca, certificate, key) = sign(&made)
            .map_err(|why| format!("no certificate for {}: {why}", made.names.join(", ")))?;
        let ca_before = before.map(|before| before.ca.clone());
        Ok(Self { ca, ca_before, certificate, key, made })
    }

    /// Reads a Secret's data; `None` if it has no keys that can be used.
    pub(crate) fn of(data: &BTreeMap<String, ByteString>) -> Option<Self> {
        let text = |name: &str| String::from_utf8(data.get(name)?.0.clone()).ok();
        let keys = Self {
            ca: text(CA)?,
            ca_before: text(CA_BEFORE),
            certificate: text(CERTIFICATE)?,
            key: text(KEY)?,
            made: serde_json::from_slice(&data.get(MADE)?.0).ok()?,
        };
        keys.served().is_ok().then_some(keys)
    }

    /// As a Secret's data.
    pub(crate) fn data(&self) -> BTreeMap<String, ByteString> {
        let made = serde_json::to_string(&self.made).unwrap_or_default();
        let parts = [
            (CA, Some(&self.ca)),
            (CA_BEFORE, self.ca_before.as_ref()),
            (CERTIFICATE, Some(&self.certificate)),
            (KEY, Some(&self.key)),
            (MADE, Some(&made)),
        ];
        let bytes = |text: &String| ByteString(text.clone().into_bytes());
        parts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), bytes(text?)))).collect()
    }

    /// Whether they can be used for all of these names, and two thirds of their life are not over.
    pub(crate) fn will_do(&self, names: &[String], now_ms: i64) -> bool {
        let life_ms = self.made.until_ms.saturating_sub(self.made.at_ms);
        let renewed_ms = self.made.at_ms.saturating_add(life_ms / 3 * 2);
        now_ms < renewed_ms && names.iter().all(|name| self.made.names.contains(name))
    }

    /// The authorities that clients are to trust.
    pub(crate) fn bundle(&self) -> String {
        format!("{}{}", self.ca, self.ca_before.as_deref().unwrap_or_default())
    }

    /// Whether connections are served by them.
    pub(crate) fn are_served(&self, served: &Served) -> bool {
        served.certificate == self.certificate
    }

    /// What connections are served by.
    ///
    /// # Errors
    /// It is no certificate, no key, or they do not belong together.
    pub(crate) fn served(&self) -> Result<Served, String> {
        let why = |error: &dyn std::fmt::Display| format!("the server's certificate: {error}");
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| why(&error))?;
        let key =
            PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|error| why(&error))?;
        let versions = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .map_err(|error| why(&error))?;
        let mut tls = versions
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| why(&error))?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Served { tls: Arc::new(tls), certificate: self.certificate.clone() })
    }
}

/// An authority's certificate, a certificate that it signs, and that one's key.
fn sign(made: &Made) -> Result<(String, String, String), rcgen::Error> {
    let ca_key = KeyPair::generate()?;
    let mut ca = CertificateParams::default();
    ca.distinguished_name =
        called(&format!("hotpot {} {}", made.names.first().map_or("", String::as_str), made.at_ms));
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    limit(&mut ca, made);
    let ca_certificate = ca.self_signed(&ca_key)?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(made.names.clone())?;
    params.distinguished_name = called("hotpot");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    limit(&mut params, made);
    let certificate = params.signed_by(&key, &Issuer::new(ca, ca_key))?;
    Ok((ca_certificate.pem(), certificate.pem(), key.serialize_pem()))
}

fn limit(params: &mut CertificateParams, made: &Made) {
    let at = |ms: i64| OffsetDateTime::from_unix_timestamp(ms / 1000);
    // Times out of all range keep the library's own, which are wide.
    if let (Ok(from), Ok(until)) = (at(made.at_ms.saturating_sub(BEFORE_MS)), at(made.until_ms)) {
        (params.not_before, params.not_after) = (from, until);
    }
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::CommonName, name);
    called
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 24 * 3600 * 1000;

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn keys_are_renewed_after_two_thirds_of_their_life_and_both_authorities_are_trusted() {
        let called = names(&["hotpot-webhook.hotpot.svc", "127.0.0.1"]);
        let first = Keys::make(&called, None, 0).unwrap();
        assert!(first.will_do(&called, 243 * DAY_MS));
        assert!(!first.will_do(&called, 244 * DAY_MS));
        let second = Keys::make(&called, Some(&first), 244 * DAY_MS).unwrap();
        assert!(second.will_do(&called, 300 * DAY_MS));
        assert!(second.bundle().contains(&first.ca) && second.bundle().contains(&second.ca));
        assert!(!second.are_served(&first.served().unwrap()));
        let third = Keys::make(&called, Some(&second), 500 * DAY_MS).unwrap();
        assert!(!third.bundle().contains(&first.ca), "what is long over is trusted no more");
    }

    #[test]
    fn other_names_need_other_keys_which_keep_the_names_before() {
        let first = Keys::make(&names(&["a", "b"]), None, 0).unwrap();
        assert!(first.will_do(&names(&["b"]), 0));
        assert!(!first.will_do(&names(&["b", "c"]), 0));
        let second = Keys::make(&names(&["c"]), Some(&first), 0).unwrap();
        assert!(second.will_do(&names(&["a", "b", "c"]), 0));
    }

    #[test]
    fn what_is_stored_is_read_again_and_what_is_broken_is_not() {
        let keys = Keys::make(&names(&["a"]), None, 0).unwrap();
        assert_eq!(Keys::of(&keys.data()), Some(keys.clone()));
        assert_eq!(Keys::of(&BTreeMap::new()), None, "a chart's Secret is empty at first");
        let other = Keys::make(&names(&["a"]), None, 0).unwrap();
        for part in [CA, CERTIFICATE, KEY, MADE] {
            let mut data = keys.data();
            data.remove(part);
            assert_eq!(Keys::of(&data), None, "{part}");
        }
        let mut data = keys.data();
        data.insert(KEY.to_owned(), other.data()[KEY].clone());
        assert_eq!(Keys::of(&data), None, "the key of another certificate");
    }
}
