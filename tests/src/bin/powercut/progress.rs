//! A progress bar on stderr, drawn only for a person.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keyfence_tests::powercut::search::Progress;

const WIDTH: usize = 30;

/// Runs `work` while the bar shows how far it has come.
pub(crate) fn with_bar<T: Send>(progress: &Progress, work: impl FnOnce() -> T + Send) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            while !ended.load(Ordering::Relaxed) {
                draw(progress, start);
                std::thread::sleep(Duration::from_millis(100));
            }
            draw(progress, start);
            eprintln!();
        });
        let result = work();
        ended.store(true, Ordering::Relaxed);
        result
    })
}

fn draw(progress: &Progress, start: Instant) {
    let total = progress.total.load(Ordering::Relaxed).max(1);
    let done = progress.done.load(Ordering::Relaxed).min(total);
    let full = done * WIDTH / total;
    let cases = progress.cases.load(Ordering::Relaxed);
    let failures = progress.failures.load(Ordering::Relaxed);
    let rate = cases as f64 / start.elapsed().as_secs_f64().max(0.001);
    let mut stderr = std::io::stderr().lock();
    // A bar that cannot be drawn is no reason to stop.
    let _ = write!(
        stderr,
        "\r[{}{}] {:3}%  {cases} cases, {failures} failed, {rate:.0}/s ",
        "#".repeat(full),
        " ".repeat(WIDTH - full),
        done * 100 / total
    );
    let _ = stderr.flush();
}
