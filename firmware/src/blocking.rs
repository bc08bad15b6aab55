//! A blocking flash driver under `sequential-storage`, and what becomes of a region that may be lost.

use core::ops::Range;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use embedded_storage::nor_flash::{ErrorType, NorFlash};
use embedded_storage_async::nor_flash as asynch;
use sequential_storage::Error;

/// What a region that may be lost answers, and whether it still had what was put into it.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<T> {
    /// The region could be read as it was.
    Kept(T),
    /// It could not: it has been formatted, and everything it held before is gone.
    Formatted(T),
}

impl<T> Answer<T> {
    /// The answer itself.
    pub fn value(self) -> T {
        match self {
            Self::Kept(value) | Self::Formatted(value) => value,
        }
    }

    /// The same with another answer.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Self::Kept(value) => Answer::Kept(change(value)),
            Self::Formatted(value) => Answer::Formatted(change(value)),
        }
    }
}

/// Why a region that may be lost did not do what it was asked. Nothing else in the device depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionError<E> {
    /// The range is not one of whole pages inside the driver's capacity, or has too few of them.
    Range,
    /// What is to be kept is too long.
    TooLong,
    /// The region has no room for it even when it holds nothing else.
    Full,
    /// The driver reports a failure, or the region cannot be used although it was formatted.
    Flash(Option<E>),
}

/// Checks a range as far as the crate itself would only panic over it.
pub(crate) fn check<F: NorFlash>(flash: &F, range: &Range<u32>, pages_min: usize) -> bool {
    let (start, end) = (range.start as usize, range.end as usize);
    let whole = F::ERASE_SIZE != 0 && start.is_multiple_of(F::ERASE_SIZE) && end.is_multiple_of(F::ERASE_SIZE);
    whole && start <= end && end <= flash.capacity() && (end - start) / F::ERASE_SIZE >= pages_min
}

/// Does `work` on the region. When that fails twice, the region counts as unreadable: it is formatted, and `work` is done
/// on what is then a blank region.
///
/// A cut in the formatting leaves some pages of the old region; the next call finds them readable, or formats again.
pub(crate) fn on_region<F: NorFlash, T>(
    flash: &mut F,
    range: &Range<u32>,
    mut work: impl FnMut(&mut F) -> Result<T, Error<F::Error>>,
) -> Result<Answer<T>, RegionError<F::Error>> {
    // Once more, since a driver may fail once where nothing is wrong.
    for _ in 0..2 {
        match work(flash).map_err(blame) {
            Ok(value) => return Ok(Answer::Kept(value)),
            Err(Blame::Caller(error)) => return Err(error),
            Err(Blame::Region(_)) => {}
        }
    }
    // What fills a region that was made large enough is not ours.
    flash
        .erase(range.start, range.end)
        .map_err(|error| RegionError::Flash(Some(error)))?;
    match work(flash).map_err(blame) {
        Ok(value) => Ok(Answer::Formatted(value)),
        Err(Blame::Caller(error)) => Err(error),
        Err(Blame::Region(error)) => Err(error),
    }
}

enum Blame<E> {
    Caller(RegionError<E>),
    Region(RegionError<E>),
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enum is open; whatever it does not know how to read makes a region unreadable"
)]
fn blame<E>(error: Error<E>) -> Blame<E> {
    match error {
        Error::ItemTooBig => Blame::Caller(RegionError::TooLong),
        Error::FullStorage => Blame::Region(RegionError::Full),
        Error::Storage { value, .. } => Blame::Region(RegionError::Flash(Some(value))),
        _ => Blame::Region(RegionError::Flash(None)),
    }
}

/// The asynchronous face of a blocking driver. It never makes anybody wait.
pub(crate) struct Blocking<'a, F>(pub(crate) &'a mut F);

impl<F: ErrorType> ErrorType for Blocking<'_, F> {
    type Error = F::Error;
}

impl<F: NorFlash> asynch::ReadNorFlash for Blocking<'_, F> {
    const READ_SIZE: usize = F::READ_SIZE;

    async fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), Self::Error> {
        self.0.read(offset, bytes)
    }

    fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

impl<F: NorFlash> asynch::NorFlash for Blocking<'_, F> {
    const WRITE_SIZE: usize = F::WRITE_SIZE;
    const ERASE_SIZE: usize = F::ERASE_SIZE;

    async fn erase(&mut self, from: u32, to: u32) -> Result<(), Self::Error> {
        self.0.erase(from, to)
    }

    async fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), Self::Error> {
        self.0.write(offset, bytes)
    }
}

/// Runs a future over a [`Blocking`] driver, which is done when it is first polled.
pub(crate) fn wait<T, E>(future: impl Future<Output = Result<T, Error<E>>>) -> Result<T, Error<E>> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => Err(Error::LogicBug {}),
    }
}
