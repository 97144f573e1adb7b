//! The admin API: what operators see and do, and what others try.

mod access;
mod commands;
mod hostile;
mod maintenance;
mod metrics;
mod orders;
mod pages;
mod sessions;
mod support;
