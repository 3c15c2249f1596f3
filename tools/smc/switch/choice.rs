// SPDX-License-Identifier: GPL-2.0

//! Selects sockets by cgroup and by program name.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::str::FromStr;

/// Levels below the root at which the BPF program looks for a selected cgroup; the same in
/// `bpf/switch.c`.
const LEVELS: usize = 64;

/// A cgroup of version 2.
pub(super) struct Cgroup {
    pub(super) path: PathBuf,
    id: u64,
}

impl Cgroup {
    /// Finds the cgroup of a directory, or of a path below the root of the hierarchy.
    pub(super) fn find(path: &Path) -> io::Result<Self> {
        let place = folder_of(path, root)?;
        Self::at(&place).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
    }

    fn at(folder: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(folder)?;
        if !is_cgroup(&path) {
            return Err(io::Error::other("is no cgroup of version 2"));
        }
        let root = root()?;
        let depth = path
            .strip_prefix(&root)
            .unwrap_or(&path)
            .components()
            .count();
        if depth >= LEVELS {
            let text = format!("is more than {LEVELS} levels below the root");
            return Err(io::Error::other(text));
        }
        // The inode number of the directory is the id of the cgroup.
        let id = fs::metadata(&path)?.ino();
        Ok(Self { path, id })
    }

    /// Returns the cgroup of this process.
    pub(super) fn own() -> io::Result<Self> {
        let path = cgroup_in(&fs::read_to_string("/proc/self/cgroup")?);
        let path =
            path.ok_or_else(|| io::Error::other("this process is in no cgroup of version 2"))?;
        Self::at(&below(&root()?, &path))
    }

    /// Returns the key in the map of the BPF program.
    pub(super) fn key(&self) -> [u8; 8] {
        self.id.to_ne_bytes()
    }
}

/// Returns the path in the hierarchy of version 2 from `/proc/PID/cgroup`.
pub(super) fn cgroup_in(lines: &str) -> Option<PathBuf> {
    let mut lines = lines.lines();
    lines.find_map(|line| line.strip_prefix("0::").map(PathBuf::from))
}

/// Every cgroup of version 2, and no other directory, has this file.
fn is_cgroup(folder: &Path) -> bool {
    folder.join("cgroup.controllers").exists()
}

/// Returns the directory that `path` names: itself or, as `show` prints it, from the root of the hierarchy. There may
/// be both: `/` always is one, and `/docker` may be.
fn folder_of(path: &Path, root: impl FnOnce() -> io::Result<PathBuf>) -> io::Result<PathBuf> {
    if is_cgroup(path) {
        return Ok(path.to_path_buf());
    }
    let root = root()?;
    let place = below(&root, path);
    match path.is_dir() && !place.exists() {
        true => Err(io::Error::other(format!(
            "{}: is no cgroup of version 2, and there is none of that path below {}",
            path.display(),
            root.display()
        ))),
        false => Ok(place),
    }
}

/// Appends `path` to `root` even if it begins with a slash.
pub(super) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns the mount point of the version 2 hierarchy.
fn root() -> io::Result<PathBuf> {
    let root = mounted("cgroup2")?.into_iter().next();
    root.ok_or_else(|| {
        io::Error::other(
            "no cgroup file system of version 2 is mounted (mount -t cgroup2 none FOLDER)",
        )
    })
}

/// Returns the mount points of file systems of this type.
pub(super) fn mounted(kind: &str) -> io::Result<Vec<PathBuf>> {
    mounted_at(Path::new("/proc/self/mounts"), kind)
}

/// As [`mounted`], of the process whose mounts this file lists.
pub(super) fn mounted_at(file: &Path, kind: &str) -> io::Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string(file)?;
    let places = mounts.lines().filter_map(|line| place_in(line, kind));
    Ok(places.collect())
}

fn place_in(line: &str, wanted: &str) -> Option<PathBuf> {
    let mut fields = line.split(' ');
    let (_, folder, kind) = (fields.next()?, fields.next()?, fields.next()?);
    (kind == wanted).then(|| unescaped(folder))
}

/// Decodes a path of `/proc/self/mounts`, in which blanks and the like are printed as `\040`.
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let number = others
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = number.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (first, byte) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &others[3..];
            }
            _ => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

/// Returns the paths of cgroups from the root; the id of one that was removed.
pub(super) fn paths(ids: &[u64]) -> Vec<String> {
    let root = root().ok();
    let mut found = Vec::new();
    if let Some(root) = &root {
        walk(root, &mut |folder, id| {
            if ids.contains(&id) {
                let below = folder.strip_prefix(root).unwrap_or(folder);
                found.push((id, format!("/{}", below.display())));
            }
        });
    }
    let gone = ids
        .iter()
        .filter(|id| !found.iter().any(|(known, _)| known == *id));
    let gone: Vec<_> = gone.map(|id| (*id, named_by(*id))).collect();
    found.extend(gone);
    let mut paths: Vec<_> = found.into_iter().map(|(_, path)| path).collect();
    paths.sort_unstable();
    paths
}

/// Returns how a cgroup that is gone is shown.
fn named_by(id: u64) -> String {
    format!("id {id} (gone)")
}

/// Returns the id of a cgroup that is gone from how it is shown, or without the last word.
pub(super) fn gone(text: &str) -> Option<u64> {
    let id = text.strip_prefix("id ")?;
    id.strip_suffix(" (gone)").unwrap_or(id).parse().ok()
}

/// Returns the id of a cgroup from its key.
pub(super) fn id(key: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(key.try_into().ok()?))
}

/// Returns the ids of all cgroups; `None` if this process does not see all of them.
pub(super) fn all_ids() -> Option<HashSet<u64>> {
    let root = root().ok()?;
    // Each cgroup but that at the root of all has this file.
    if root.join("cgroup.type").exists() {
        return None;
    }
    let mut ids = HashSet::new();
    walk(&root, &mut |_, id| {
        ids.insert(id);
    });
    Some(ids)
}

fn walk(folder: &Path, visit: &mut impl FnMut(&Path, u64)) {
    if let Ok(metadata) = fs::metadata(folder) {
        visit(folder, metadata.ino());
    }
    // The directory may have been removed.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&entry.path(), visit);
        }
    }
}

/// The name of a program, as in `task_struct.comm`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name([u8; Name::LEN]);

impl Name {
    /// Length, bytes; the last one is NUL.
    const LEN: usize = 16;

    /// Returns the key in the map of the BPF program.
    pub(super) fn key(&self) -> [u8; Self::LEN] {
        self.0
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut name = [0; Self::LEN];
        match name.get_mut(..text.len()) {
            Some(part) if (1..Self::LEN).contains(&text.len()) => {
                part.copy_from_slice(text.as_bytes());
                Ok(Self(name))
            }
            _ => Err(format!(
                "expected 1 to {} bytes, as in /proc/PID/comm",
                Self::LEN - 1
            )),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(&self.0))
    }
}

/// Returns the name up to the first NUL.
pub(super) fn text(key: &[u8]) -> String {
    let name = key.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    #[test]
    fn a_folder_that_is_no_cgroup_may_have_the_name_of_one() {
        let name = format!("smc-choice-{}", std::process::id());
        let top = env::temp_dir().join(name);
        // A folder /TOP/docker that is none, and a cgroup ROOT/TOP/docker.
        let (root, docker) = (top.join("root"), top.join("docker"));
        let cgroup = below(&root, &docker);
        for folder in [&docker, &cgroup] {
            fs::create_dir_all(folder).unwrap();
        }
        for folder in [&root, &cgroup] {
            fs::write(folder.join("cgroup.controllers"), "").unwrap();
        }
        let folder_of = |path: &Path| folder_of(path, || Ok(root.clone()));
        assert_eq!(folder_of(&docker).unwrap(), cgroup);
        assert_eq!(folder_of(&cgroup).unwrap(), cgroup);
        assert_eq!(folder_of(Path::new("/")).unwrap(), root);
        let absent = Path::new("/none/of.these");
        assert_eq!(folder_of(absent).unwrap(), below(&root, absent));
        fs::remove_dir_all(&cgroup).unwrap();
        let error = folder_of(&docker).unwrap_err().to_string();
        assert!(error.contains("docker: is no cgroup"), "{error}");
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn names_are_as_long_as_the_kernel_keeps_them() {
        let name: Name = "redis-server".parse().unwrap();
        assert_eq!(&name.key(), b"redis-server\0\0\0\0");
        assert_eq!(name.to_string(), "redis-server");
        assert!("fifteen-bytes-x".parse::<Name>().is_ok());
        assert!("sixteen-bytes-xy".parse::<Name>().is_err());
        assert!("".parse::<Name>().is_err());
    }

    #[test]
    fn a_cgroup_that_is_gone_has_a_name() {
        assert_eq!(gone(&named_by(17)), Some(17));
        assert_eq!(gone("id 17"), Some(17));
        for path in ["id", "id x", "/id 17", "17", "id 17 (gone) "] {
            assert_eq!(gone(path), None, "{path}");
        }
    }

    #[test]
    fn the_hierarchy_of_version_2_is_found() {
        assert_eq!(
            place_in("cgroup /sys/fs/cgroup/cpu cgroup rw 0 0", "cgroup2"),
            None
        );
        let found = place_in("none /tmp/a\\040b cgroup2 rw 0 0", "cgroup2");
        assert_eq!(found, Some(PathBuf::from("/tmp/a b")));
        assert_eq!(
            below(Path::new("/c"), Path::new("/user.slice")),
            Path::new("/c/user.slice")
        );
    }
}
