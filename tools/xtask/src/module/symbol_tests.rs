// SPDX-License-Identifier: GPL-2.0
//! Symbols that are too long for the kernel.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn a_symbol_leaves_room_for_the_nul() {
    let dir = std::env::temp_dir().join(format!("xtask-symbols-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let kernel = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../kernel");
    let fits = |len: usize| {
        let (source, object) = (dir.join("long.s"), dir.join("long.o"));
        fs::write(&source, format!("{}:\n", "a".repeat(len))).unwrap();
        let mut cc = Command::new("cc");
        cc.arg("-c").arg(&source).arg("-o").arg(&object);
        assert!(cc.status().unwrap().success());
        let out = Command::new(kernel.join("check-symbols"))
            .arg(&object)
            .output()
            .unwrap();
        out.status.success()
    };
    let (shorter, longer) = (fits(511), fits(512));
    fs::remove_dir_all(&dir).unwrap();
    assert!(shorter && !longer);
}
