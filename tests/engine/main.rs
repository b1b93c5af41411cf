//! The engine's one integration binary: each area is a module. (`cfg(test)` tells the lints that they are tests.)

#[cfg(test)]
mod agent;
#[cfg(test)]
mod transcript;
