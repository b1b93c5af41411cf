//! What a machine needs before anything can be built: system packages and Node.

use anyhow::{Context, bail};

use crate::{
    command::Run,
    system_packages::{self, Family},
};

/// What is about to be done; journeys need more than the app does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    App,
    Tests,
}

/// The oldest Node the window's tools run on.
const NODE: (u32, u32) = (20, 19);

/// Installs what is missing, or says exactly what to install.
pub fn machine(purpose: Purpose) -> anyhow::Result<()> {
    match system_packages::family() {
        Family::Debian => debian(purpose)?,
        other => system_packages::explain(other, purpose),
    }
    node()
}

fn debian(purpose: Purpose) -> anyhow::Result<()> {
    let missing: Vec<&str> =
        system_packages::debian(purpose).into_iter().filter(|package| !is_installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("installing system packages: {}", missing.join(" "));
    apt(&["update"]).context("could not refresh the package lists")?;
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(&missing);
    apt(&install).with_context(|| {
        format!("could not install the system packages; by hand: apt-get install {}", missing.join(" "))
    })
}

fn is_installed(package: &str) -> bool {
    let query = Run::new("dpkg-query").args(["--show", "--showformat", "${db:Status-Status}\n", package]);
    let mut is_installed = false;
    let known = query.silent_lines(|line| is_installed |= line == "installed");
    known && is_installed
}

fn apt(arguments: &[&str]) -> anyhow::Result<()> {
    let is_root = Run::new("id").arg("-u").output()?.trim() == "0";
    let variables = ["DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1"];
    let run = match is_root {
        true => Run::new("env"),
        false if Run::new("sudo").arg("--version").succeeds() => Run::new("sudo").arg("env"),
        false => bail!("not root, and there is no sudo"),
    };
    run.args(variables).arg("apt-get").args(arguments).run()
}

fn node() -> anyhow::Result<()> {
    let (major, minor) = NODE;
    let advice =
        format!("install Node {major}.{minor} or newer with npm (https://nodejs.org, or your package manager)");
    let found = Run::new("node").arg("--version").output().with_context(|| format!("no Node: {advice}"))?;
    let version = parse_version(&found).with_context(|| format!("could not read Node's version from {found:?}"))?;
    if version < NODE {
        bail!("Node is {}, too old: {advice}", found.trim());
    }
    Ok(())
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().strip_prefix('v')?.split('.').map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert_eq!(parse_version("v20.19.2\n"), Some((20, 19)));
        assert!(parse_version("v9.9.0").unwrap() < NODE, "9 is older than 20");
        assert_eq!(parse_version("twenty"), None);
    }
}
