//! The engine as its users see it: through `Engine` alone, over sandboxes in memory or real ones.

mod bad_input;
mod life;
mod store;
mod world;
