//! `libnvidia-ml.so.1` over a simulated machine.
