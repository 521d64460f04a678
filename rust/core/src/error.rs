//! Why bytes were refused.

/// Why a block was refused. Trust nothing from its first seq on.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BlockError {
    /// The bytes are not those that were written.
    #[error("{0}")]
    Damaged(&'static str),
    /// A later branchmem wrote it: upgrade.
    #[error("skeleton blocks of version {0} are newer than this version")]
    TooNew(u8),
    /// The block does not follow on what was folded.
    #[error("events are missing before it: the log stands at seq {0}")]
    Gap(u64),
}
