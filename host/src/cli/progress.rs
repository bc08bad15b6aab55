//! A progress bar on standard error, where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use keyfence::Progress;

/// Shows how far long work has come. The bar is gone when it is dropped.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new() -> Self {
        // It draws nothing where standard error is no terminal.
        Self(ProgressBar::new(0))
    }

    /// Moves the bar.
    pub(crate) fn show(&self, progress: Progress) {
        let template = if progress.total == 0 {
            "{spinner} {msg} {human_pos}"
        } else {
            "{msg} {wide_bar} {percent}% {eta}"
        };
        if self.0.message() != progress.stage {
            self.0.reset();
            self.0.set_message(progress.stage);
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.0.set_style(style);
            }
        }
        self.0.set_length(progress.total);
        self.0.set_position(progress.done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
