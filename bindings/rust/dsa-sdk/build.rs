//! Programs of this crate find the library where it was linked from, also without Cargo around them.

fn main() {
    if let Ok(folder) = std::env::var("DEP_DSA_SDK_LIB_DIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
