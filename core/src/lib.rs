//! The fencing machines of keyfence.
#![no_std]
#![forbid(unsafe_code)]
