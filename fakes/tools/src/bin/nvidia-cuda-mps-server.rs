//! The simulated MPS server: holds a place for the clients of one user until it is told to end.
//! Like the real one it outlives a control daemon that is killed.

fn main() {
    loop {
        std::thread::park();
    }
}
