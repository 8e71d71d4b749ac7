//! Gives the library the name by which programs look for it, and has it call its own functions whatever
//! is preloaded, as the real one does.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
