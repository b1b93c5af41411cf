//! The sample project: a small repository that shows the app without keys or network.

use std::path::Path;

use git2::{Repository, Signature};

use super::Error;

const FILES: &[(&str, &str)] = &[
    (
        "README.md",
        "# Sample notes\n\nA small project to try CodeCourier with. Nothing here needs a key or the network.\n\n\
         Start a Shell sandbox and send it a script, for example `bash count.sh 10`.\n",
    ),
    (
        "count.sh",
        "#!/bin/bash\n# Counts to the number given, one line a second.\nfor number in $(seq 1 \"${1:-10}\"); do\n  \
         echo \"line $number\"\n  sleep 1\ndone\n",
    ),
    ("notes/monday.md", "- water the plants\n- read about alternates in git\n"),
    ("notes/tuesday.md", "- write down what the agent did\n"),
];

/// Makes the repository at `path`, or leaves the one that is there.
///
/// # Errors
/// `Git` or `Io`.
pub fn create(path: &Path) -> Result<(), Error> {
    if Repository::open(path).is_ok_and(|repository| repository.head().is_ok()) {
        return Ok(());
    }
    let repository = Repository::init_opts(path, git2::RepositoryInitOptions::new().initial_head("main").mkpath(true))?;
    let mut index = repository.index()?;
    for (name, content) in FILES {
        let file = path.join(name);
        std::fs::create_dir_all(file.parent().expect("a file in a folder"))
            .and_then(|()| std::fs::write(&file, content))
            .map_err(|source| Error::Io { path: file.clone(), source })?;
        index.add_path(Path::new(name))?;
    }
    index.write()?;
    let tree = repository.find_tree(index.write_tree()?)?;
    let author = Signature::now("CodeCourier", "sample@codecourier.invalid")?;
    repository.commit(Some("HEAD"), &author, &author, "Begin the sample notes", &tree, &[])?;
    Ok(())
}
