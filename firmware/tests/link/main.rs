//! The link, end to end on a PC: both ends, a line between them that somebody meddles with, and a kiosk that counts what it
//! is asked to do.

mod conversation;
mod handshake;
mod line;
mod longest;
mod messages;
mod noise;
mod timing;
