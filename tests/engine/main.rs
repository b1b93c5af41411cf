//! The engine as its users see it. (`cfg(test)` tells the lints that these are tests.)

#[cfg(test)]
mod agent;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod agents;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod bad_days;
#[cfg(test)]
mod bad_input;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod canary;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod checkpoints;
#[cfg(test)]
mod continuing;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod courier;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod e2b;
#[cfg(test)]
mod forge;
#[cfg(test)]
mod gateway;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod isolation;
#[cfg(test)]
mod life;
#[cfg(test)]
mod prove;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod pull_request;
#[cfg(test)]
#[cfg(unix)]
mod push;
#[cfg(test)]
#[cfg(unix)]
mod push_ssh;
#[cfg(test)]
mod recordings;
#[cfg(test)]
mod store;
#[cfg(test)]
mod threat_model;
#[cfg(test)]
mod transcript;
#[cfg(test)]
#[cfg(unix)]
mod trash;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod work;
#[cfg(test)]
mod world;
