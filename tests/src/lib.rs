//! How keyfence is proved.
