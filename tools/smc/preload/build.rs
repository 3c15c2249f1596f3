// SPDX-License-Identifier: GPL-2.0

//! Names the library as it is preloaded: ldconfig lists a library by the name that it has for itself.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsmc-preload.so");
}
