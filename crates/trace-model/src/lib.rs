//! Pure: records to invocations, trees, buckets, windows, statistics.
