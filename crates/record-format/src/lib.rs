//! The text grammar of the log in one place: encode into 512 bytes, decode into borrowed fields.
