//! Serves what a node measures as Prometheus text.
