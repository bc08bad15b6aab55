//! Dependencies point one way: `tests -> host, firmware, core`, `boards -> firmware -> core`, `host -> core`; and the host
//! uses the link that it shares with the firmware and what provisions a kiosk, and nothing else of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Each folder of the workspace, and the folders whose packages those in it may depend on.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("firmware", &["core"]),
    // What boards share lies beside them.
    ("boards", &["boards", "firmware", "core"]),
    ("host", &["core", "firmware"]),
    ("tests", &["host", "firmware", "core"]),
];

/// Everything that the core may depend on outside the workspace.
const CORE_MAY_USE: &[&str] = &["heapless", "defmt"];

/// An edge from a package of the workspace.
struct Edge {
    from: String,
    from_folder: String,
    to: String,
    /// The folder of the package it leads to, when that is one of the workspace.
    to_folder: Option<String>,
}

fn metadata() -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The first folder below the workspace's root; none for a package at the root itself.
fn folder(metadata: &Value, path: &Value) -> Option<String> {
    let root = metadata["workspace_root"].as_str().unwrap();
    let below = Path::new(path.as_str().unwrap()).strip_prefix(root).ok()?;
    let first = below.components().next()?;
    (below.components().count() > 1 || below.extension().is_none())
        .then(|| first.as_os_str().to_string_lossy().into_owned())
}

fn edges(metadata: &Value) -> Vec<Edge> {
    let mut edges = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let from_folder = folder(metadata, &package["manifest_path"]).expect("no package lies at the root");
        for dependency in package["dependencies"].as_array().unwrap() {
            edges.push(Edge {
                from: package["name"].as_str().unwrap().to_owned(),
                from_folder: from_folder.clone(),
                to: dependency["name"].as_str().unwrap().to_owned(),
                to_folder: dependency.get("path").and_then(|path| folder(metadata, path)),
            });
        }
    }
    edges
}

/// Why an edge is not allowed, if it is not.
fn forbidden(edge: &Edge) -> Option<String> {
    let Some((_, allowed)) = MAY_DEPEND_ON.iter().find(|(folder, _)| *folder == edge.from_folder) else {
        return Some(format!(
            "{}: decide what packages in {} may depend on",
            edge.from, edge.from_folder
        ));
    };
    match &edge.to_folder {
        Some(to) if allowed.contains(&to.as_str()) => None,
        Some(to) => Some(format!(
            "{} in {} depends on {} in {to}",
            edge.from, edge.from_folder, edge.to
        )),
        None if edge.from_folder == "core" && !CORE_MAY_USE.contains(&edge.to.as_str()) => {
            Some(format!("{} depends on {}", edge.from, edge.to))
        }
        None => None,
    }
}

#[test]
fn dependencies_point_one_way() {
    let metadata = metadata();
    let edges = edges(&metadata);
    let forbidden: Vec<_> = edges.iter().filter_map(forbidden).collect();
    assert_eq!(forbidden, Vec::<String>::new());
    for (from, to) in [("keyfence", "keyfence-core"), ("keyfence-tests", "keyfence")] {
        assert!(
            edges
                .iter()
                .any(|edge| edge.from == from && edge.to == to && edge.to_folder.is_some()),
            "{from} -> {to} is an edge, so that the graph was read"
        );
    }
}

/// The files of a folder and of those in it.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .collect()
}

#[test]
fn the_host_uses_the_link_of_the_firmware_and_what_provisions_a_kiosk() {
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/src"));
    let mut uses = 0;
    for path in sources {
        let text = std::fs::read_to_string(&path).unwrap();
        for (at, name) in text.match_indices("keyfence_firmware") {
            let behind = &text[at + name.len()..];
            assert!(
                ["::link::", "::kiosk::", "::identity::"]
                    .iter()
                    .any(|part| behind.starts_with(part)),
                "{}: {name}{:.20}",
                path.display(),
                behind
            );
            uses += 1;
        }
    }
    assert!(uses > 0, "the sources were read");
}

#[test]
fn an_edge_against_the_arrow_is_noticed() {
    let edge = |from_folder: &str, to: &str, to_folder: Option<&str>| Edge {
        from: "one".to_owned(),
        from_folder: from_folder.to_owned(),
        to: to.to_owned(),
        to_folder: to_folder.map(str::to_owned),
    };
    for (from, to) in [
        ("core", "host"),
        ("core", "tests"),
        ("firmware", "host"),
        ("host", "tests"),
        ("boards", "host"),
        ("elsewhere", "core"),
    ] {
        assert!(forbidden(&edge(from, "another", Some(to))).is_some(), "{from} -> {to}");
    }
    assert!(forbidden(&edge("core", "serde", None)).is_some());
    assert!(forbidden(&edge("core", "heapless", None)).is_none());
    assert!(forbidden(&edge("host", "serde", None)).is_none());
}

#[test]
fn the_core_has_no_feature_but_defmt() {
    let metadata = metadata();
    let core = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .find(|package| package["name"] == "keyfence-core")
        .unwrap();
    let features: Vec<_> = core["features"].as_object().unwrap().keys().collect();
    assert_eq!(features, ["defmt"]);
}
