//! Bytes to records: files, directories, pipes, gz and zstd, with a complaint for all that is not one.
