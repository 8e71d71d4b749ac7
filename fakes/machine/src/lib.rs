//! A simulated GPU machine: its state lies in one file that all processes share.
