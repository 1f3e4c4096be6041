//! Finds the library: in DSA_SDK_DIR (an installation, or a folder with the library in it), else with pkg-config.
//! With the feature `static` it is linked into the program; what it needs itself still comes from the system.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{exit, Command};

const LIBRARY: &str = if cfg!(feature = "static") { "libdsa_sdk.a" } else { "libdsa_sdk.so" };
const NEEDED_BY_STATIC: [&str; 4] = ["sentencepiece", "pcre2-8", "webp", "stdc++"];

fn main() {
    println!("cargo:rerun-if-env-changed=DSA_SDK_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    let found = match env::var_os("DSA_SDK_DIR") {
        Some(folder) => in_installation(Path::new(&folder)),
        None => from_pkg_config(),
    };
    match found {
        Ok(folder) => link(&folder),
        Err(why) => {
            eprintln!("dsa-sdk-sys: {why}; set DSA_SDK_DIR to an installation of DSA SDK");
            exit(1);
        }
    }
}

fn in_installation(folder: &Path) -> Result<PathBuf, String> {
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let places = [
        folder.to_path_buf(),
        folder.join("lib"),
        folder.join("lib64"),
        folder.join("lib").join(format!("{machine}-linux-gnu")),
    ];
    let found = places.iter().find(|place| place.join(LIBRARY).exists());
    found
        .cloned()
        .ok_or_else(|| format!("there is no {LIBRARY} in '{}' and its lib folder", folder.display()))
}

fn from_pkg_config() -> Result<PathBuf, String> {
    let tool = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_string());
    let output = Command::new(&tool).args(["--variable=libdir", "dsa_sdk"]).output();
    match output {
        Ok(done) if done.status.success() => Ok(PathBuf::from(String::from_utf8_lossy(&done.stdout).trim())),
        Ok(_) => Err(format!("{tool} does not know dsa_sdk")),
        Err(error) => Err(format!("{tool}: {error}")),
    }
}

fn link(folder: &Path) {
    let library = folder.join(LIBRARY);
    println!("cargo:rerun-if-changed={}", library.display());
    println!("cargo:rustc-link-search=native={}", folder.display());
    if cfg!(feature = "static") {
        println!("cargo:rustc-link-lib=static=dsa_sdk");
        NEEDED_BY_STATIC.iter().for_each(|name| println!("cargo:rustc-link-lib=dylib={name}"));
        return;
    }
    println!("cargo:rustc-link-lib=dylib=dsa_sdk");
    println!("cargo:lib_dir={}", folder.display());
    // Cargo lets programs that it starts look into folders of its own only: a link there finds the library for them.
    let major = env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    if let (Some(out), Ok(target)) = (env::var_os("OUT_DIR"), library.canonicalize()) {
        let alias = Path::new(&out).join(format!("{LIBRARY}.{major}"));
        let _ = std::fs::remove_file(&alias);
        #[cfg(unix)]
        if std::os::unix::fs::symlink(target, &alias).is_ok() {
            println!("cargo:rustc-link-search=native={}", Path::new(&out).display());
        }
    }
}
