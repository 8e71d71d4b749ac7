//! The adapter for one machine: carries plans out as processes.
