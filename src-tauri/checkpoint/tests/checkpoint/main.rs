//! Checkpoints, with the real git as the judge. (`cfg(test)` tells the lints that these are tests.)

#[cfg(test)]
#[cfg(unix)]
mod hostile;
#[cfg(test)]
#[cfg(unix)]
mod ordinary;
#[cfg(test)]
#[cfg(unix)]
mod same_as_git;
#[cfg(test)]
#[cfg(unix)]
mod world;
