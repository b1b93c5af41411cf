//! The system packages, by family of operating system.

use crate::setup::Purpose;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Debian,
    Fedora,
    Arch,
    OtherLinux,
    MacOs,
    Windows,
}

/// Needed to build and run the app.
const DEBIAN_APP: &[&str] = &[
    "build-essential",
    "pkg-config",
    "git",
    "ca-certificates",
    "libssl-dev",
    "libwebkit2gtk-4.1-dev",
    "libayatana-appindicator3-dev",
    "librsvg2-dev",
    "libxdo-dev",
    "bubblewrap",
];

/// Needed by the journeys: a display, a bus, a keychain, a driver, and letters to draw.
/// And by the judges that are written in Python: an environment of its own.
const DEBIAN_TESTS: &[&str] =
    &["webkit2gtk-driver", "xvfb", "dbus", "gnome-keyring", "fonts-dejavu-core", "openssh-client", "python3-venv"];

pub fn debian(purpose: Purpose) -> Vec<&'static str> {
    let tests = if purpose == Purpose::Tests { DEBIAN_TESTS } else { &[] };
    [DEBIAN_APP, tests].concat()
}

pub fn family() -> Family {
    if cfg!(target_os = "macos") {
        return Family::MacOs;
    }
    if cfg!(windows) {
        return Family::Windows;
    }
    family_of(&std::fs::read_to_string("/etc/os-release").unwrap_or_default())
}

/// Reads `ID` and `ID_LIKE` of os-release: Ubuntu and Mint say that they are like Debian.
fn family_of(release: &str) -> Family {
    let values = release.lines().filter_map(|line| line.strip_prefix("ID=").or(line.strip_prefix("ID_LIKE=")));
    let names: Vec<&str> = values.flat_map(|value| value.trim_matches('"').split(' ')).collect();
    let is = |name: &str| names.contains(&name);
    match () {
        () if is("debian") || is("ubuntu") => Family::Debian,
        () if is("fedora") || is("rhel") => Family::Fedora,
        () if is("arch") => Family::Arch,
        () => Family::OtherLinux,
    }
}

/// Says what to install where this program does not install by itself.
pub fn explain(family: Family, purpose: Purpose) {
    let journeys = purpose == Purpose::Tests;
    let (app, more) = match family {
        Family::Debian => return,
        Family::Fedora => (
            "sudo dnf install gcc gcc-c++ make pkgconf git openssl-devel webkit2gtk4.1-devel libayatana-appindicator-gtk3-devel librsvg2-devel libxdo-devel bubblewrap",
            "sudo dnf install webkit2gtk-driver xorg-x11-server-Xvfb dbus-daemon gnome-keyring dejavu-sans-fonts",
        ),
        Family::Arch => (
            "sudo pacman -S --needed base-devel git openssl webkit2gtk-4.1 libayatana-appindicator librsvg xdotool bubblewrap",
            "sudo pacman -S --needed xorg-server-xvfb dbus gnome-keyring ttf-dejavu openssh",
        ),
        Family::OtherLinux => (
            "a C compiler, pkg-config, git, and the development files of OpenSSL, WebKitGTK 4.1, Ayatana AppIndicator 3, librsvg and libxdo; bubblewrap",
            "WebKitWebDriver, Xvfb, dbus-daemon, gnome-keyring and a font",
        ),
        Family::MacOs => ("xcode-select --install; brew install git node", ""),
        Family::Windows => (
            "winget install Microsoft.VisualStudio.2022.BuildTools Microsoft.EdgeWebView2Runtime Git.Git OpenJS.NodeJS.LTS (with the C++ workload of the build tools)",
            "",
        ),
    };
    println!("this machine needs, where not there yet: {app}");
    if journeys && !more.is_empty() {
        println!("the journeys need, where not there yet: {more}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relatives_of_debian_are_known_by_what_they_are_like() {
        assert_eq!(family_of("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"), Family::Debian);
        assert_eq!(family_of("NAME=\"Debian GNU/Linux\"\nID=debian\n"), Family::Debian);
        assert_eq!(family_of("ID=fedora\n"), Family::Fedora);
        assert_eq!(family_of(""), Family::OtherLinux);
    }
}
