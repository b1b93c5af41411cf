//! Building with cargo. The app is always built with its files inside (`custom-protocol`) and tests are always built
//! for the whole workspace at once: one set of features, so that nothing is built twice.

use std::path::PathBuf;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::{command::Run, place::Place};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    Dev,
    Release,
}

impl Profile {
    fn flag(self) -> &'static [&'static str] {
        if self == Self::Release { &["--release"] } else { &[] }
    }
}

/// What tells a test or a bench where the keeper is.
pub const KEEPER_VARIABLE: &str = "CODECOURIER_KEEPER";
/// And where what takes checkpoints is.
pub const CHECKPOINT_VARIABLE: &str = "CODECOURIER_CHECKPOINT";

/// What tells a test where the daemon of the E2B-compatible server's machines is.
pub const ENVD_VARIABLE: &str = "CODECOURIER_TEST_ENVD";

/// What the app consists of.
#[derive(Debug)]
pub struct Programs {
    pub app: PathBuf,
    /// The command line over the same engine.
    pub courier: PathBuf,
    /// The app looks for these two beside itself.
    pub keeper: PathBuf,
    pub checkpoint: PathBuf,
}

impl Programs {
    /// Tells a test or a bench where they are.
    pub fn named_to(&self, run: Run) -> Run {
        run.env("CODECOURIER_APP", &self.app)
            .env("CODECOURIER_COURIER", &self.courier)
            .env(KEEPER_VARIABLE, &self.keeper)
            .env(CHECKPOINT_VARIABLE, &self.checkpoint)
    }
}

/// A program full of tests.
#[derive(Debug)]
pub struct TestProgram {
    pub package: String,
    pub target: String,
    pub program: PathBuf,
    /// The package's folder: tests run there, as cargo does it.
    pub folder: PathBuf,
}

#[derive(Debug)]
pub struct Built {
    pub programs: Programs,
    /// The daemon within the machines of the E2B-compatible server.
    pub envd: PathBuf,
    pub tests: Vec<TestProgram>,
}

/// One compiled program, as cargo reports it.
struct Artifact {
    package: String,
    target: String,
    program: PathBuf,
    folder: PathBuf,
    is_test: bool,
}

pub const FEATURES: &str = "custom-protocol";

pub fn app(place: &Place, profile: Profile) -> anyhow::Result<Programs> {
    let packages = [
        "--package",
        "codecourier",
        "--package",
        "courier-engine",
        "--package",
        "courier-keeper",
        "--package",
        "courier-checkpoint",
        "--bins",
        "--features",
        FEATURES,
    ];
    programs(&build(place, &[&packages[..], profile.flag()].concat())?)
}

/// Builds the programs beside the app alone; says where they are, by the variables that tell a bench.
pub fn helpers(place: &Place, profile: Profile) -> anyhow::Result<[(&'static str, PathBuf); 3]> {
    let packages = [
        "--package",
        "courier-keeper",
        "--package",
        "courier-checkpoint",
        "--package",
        "courier-test-support",
        "--bins",
    ];
    let artifacts = build(place, &[&packages[..], profile.flag()].concat())?;
    Ok([
        (KEEPER_VARIABLE, program(&artifacts, "courier-keeper")?),
        (CHECKPOINT_VARIABLE, program(&artifacts, "courier-checkpoint")?),
        (ENVD_VARIABLE, program(&artifacts, "e2b-envd")?),
    ])
}

/// Builds every program and every test of the workspace.
pub fn everything(place: &Place) -> anyhow::Result<Built> {
    // This program is running and cannot be replaced everywhere; its tests lie elsewhere.
    let features = ["--workspace", "--exclude", "xtask", "--bins", "--tests", "--features", FEATURES];
    let mut artifacts = build(place, &features)?;
    artifacts.extend(build(place, &["--package", "xtask", "--tests"])?);
    let (programs, envd) = (programs(&artifacts)?, program(&artifacts, "e2b-envd")?);
    let tests = artifacts.into_iter().filter(|artifact| artifact.is_test).map(|artifact| TestProgram {
        package: artifact.package,
        target: artifact.target,
        program: artifact.program,
        folder: artifact.folder,
    });
    Ok(Built { programs, envd, tests: tests.collect() })
}

fn build(place: &Place, selection: &[&str]) -> anyhow::Result<Vec<Artifact>> {
    let mut artifacts = Vec::new();
    let cargo = place.cargo().args(["build", "--message-format", "json-render-diagnostics"]);
    let status = cargo.args(selection).read(|line| artifacts.extend(read(line)))?;
    if !status.success() {
        bail!("the build failed");
    }
    Ok(artifacts)
}

fn read(line: &str) -> Option<Artifact> {
    let message: Value = serde_json::from_str(line).ok()?;
    let program = PathBuf::from(message["executable"].as_str()?);
    let manifest = PathBuf::from(message["manifest_path"].as_str()?);
    let folder = manifest.parent()?.to_owned();
    Some(Artifact {
        package: package_name(message["package_id"].as_str()?).to_owned(),
        target: message["target"]["name"].as_str()?.to_owned(),
        program,
        folder,
        is_test: message["profile"]["test"] == true,
    })
}

/// `path+file:///repo/tests/support#courier-test-support@0.1.0`, or `path+file:///repo/xtask#0.1.0` where the folder
/// bears the package's name.
fn package_name(id: &str) -> &str {
    let (source, fragment) = id.split_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => source.rsplit('/').next().unwrap_or(source),
    }
}

fn programs(artifacts: &[Artifact]) -> anyhow::Result<Programs> {
    let find = |target| program(artifacts, target);
    Ok(Programs {
        app: find("codecourier")?,
        courier: find("courier")?,
        keeper: find("courier-keeper")?,
        checkpoint: find("courier-checkpoint")?,
    })
}

fn program(artifacts: &[Artifact], target: &str) -> anyhow::Result<PathBuf> {
    let found = artifacts.iter().find(|artifact| !artifact.is_test && artifact.target == target);
    found.map(|artifact| artifact.program.clone()).with_context(|| format!("the build made no {target}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_named_with_or_without_their_folder() {
        assert_eq!(package_name("path+file:///repo/tests/support#courier-test-support@0.1.0"), "courier-test-support");
        assert_eq!(package_name("path+file:///repo/xtask#0.1.0"), "xtask");
    }

    #[test]
    fn test_programs_are_told_from_programs() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///r/xtask#0.1.0","manifest_path":"/r/xtask/Cargo.toml","target":{"name":"xtask"},"profile":{"test":true},"executable":"/t/debug/deps/xtask-1"}"#;
        let artifact = read(line).unwrap();
        assert!(artifact.is_test);
        assert_eq!((artifact.package.as_str(), artifact.folder), ("xtask", PathBuf::from("/r/xtask")));
        assert!(read(r#"{"reason":"build-finished","success":true}"#).is_none());
    }
}
