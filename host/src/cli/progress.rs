//! A progress bar on standard error, where that is a terminal and the work is long.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use keyfence::Progress;

/// Work that is shorter than this shows no bar.
const LONG: Duration = Duration::from_millis(500);

/// Shows how far long work has come. The bar is gone when it is dropped.
pub(crate) struct Bar {
    bar: ProgressBar,
    since: Instant,
    /// The stage that the bar was styled for, and whether its total was known.
    styled: Option<(&'static str, bool)>,
}

impl Bar {
    pub(crate) fn new() -> Self {
        Self {
            bar: ProgressBar::hidden(),
            since: Instant::now(),
            styled: None,
        }
    }

    /// Moves the bar.
    pub(crate) fn show(&mut self, progress: Progress) {
        if self.since.elapsed() < LONG {
            return;
        }
        let stage = (progress.stage, progress.total > 0);
        if self.styled != Some(stage) {
            if self.styled.is_none() {
                // It draws nothing where standard error is no terminal.
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            let template = if progress.total > 0 {
                "{msg} {wide_bar} {percent}% {eta}"
            } else {
                "{spinner} {msg} {human_pos}"
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.bar.set_style(style);
            }
            self.bar.set_message(progress.stage);
            self.styled = Some(stage);
        }
        self.bar.set_length(progress.total);
        self.bar.set_position(progress.done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
