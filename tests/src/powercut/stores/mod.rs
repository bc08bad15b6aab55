//! The stores on the bench.
//!
//! To add one, write a [`Subject`](super::Subject) for it and a line in [`STORES`]. A store that keeps
//! values under keys needs only the few calls of `Records`.

mod ekv;
mod in_place;
pub(crate) mod keyfence;
#[cfg(feature = "littlefs2")]
mod littlefs;
mod records;
mod sequential;

use super::subject::Store;
use crate::flash::Geometry;

/// Every store that the command line can choose.
pub const STORES: &[Store] = &[
    keyfence::STORE,
    sequential::STORE,
    ekv::STORE,
    #[cfg(feature = "littlefs2")]
    littlefs::STORE,
    in_place::STORE,
];

/// The store called `name`.
#[must_use]
pub fn named(name: &str) -> Option<&'static Store> {
    STORES.iter().find(|store| store.name == name)
}

/// Four pages on every geometry.
pub(crate) const fn four_pages(_: &Geometry) -> Option<usize> {
    Some(4)
}

/// Calls `$build::<WRITE, ERASE>($chip)` with the sizes of the chip's geometry, and with one more type if there is one.
macro_rules! on_chip {
    ($chip:expr, $build:ident $(, $extra:ty)?) => {{
        let chip: &$crate::flash::SharedChip = $chip;
        let geometry = chip.borrow().geometry();
        match (geometry.write_size_bytes, geometry.erase_size_bytes) {
            (4, 1024) => $build::<4, 1024 $(, $extra)?>(chip),
            (4, 4096) => $build::<4, 4096 $(, $extra)?>(chip),
            (1, 4096) => $build::<1, 4096 $(, $extra)?>(chip),
            (8, 2048) => $build::<8, 2048 $(, $extra)?>(chip),
            (32, 131_072) => $build::<32, 131_072 $(, $extra)?>(chip),
            (1, 512) => $build::<1, 512 $(, $extra)?>(chip),
            (4, 512) => $build::<4, 512 $(, $extra)?>(chip),
            (8, 512) => $build::<8, 512 $(, $extra)?>(chip),
            (32, 1024) => $build::<32, 1024 $(, $extra)?>(chip),
            sizes => panic!("a geometry with other sizes: {sizes:?}"),
        }
    }};
}
pub(crate) use on_chip;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::flash::{Chip, GEOMETRIES};
    use crate::powercut::Subject;
    use crate::powercut::life::{Bounds, Model, Row, Verb};
    use crate::random::Random;

    fn start(subject: &mut dyn Subject) {
        subject.mount().unwrap();
        while subject.prepare().unwrap().is_some() {}
    }

    #[test]
    fn every_store_lives_on_every_geometry_that_it_runs_on() {
        for (store, geometry) in STORES
            .iter()
            .flat_map(|store| GEOMETRIES.iter().map(move |geometry| (store, geometry)))
        {
            let Some(pages) = (store.pages)(geometry) else {
                continue;
            };
            let chip = Rc::new(RefCell::new(Chip::new(geometry, pages)));
            let mut subject = (store.build)(&chip);
            subject.provision().unwrap();
            start(subject.as_mut());
            let bounds = Bounds::for_page_size(geometry.erase_size_bytes);
            let keys: Vec<_> = bounds.keys().collect();
            let (mut model, mut random) = (Model::default(), Random::new(3));
            for _ in 0..200 {
                let verb = model.next_verb(bounds, &mut random);
                if verb == Verb::Reboot {
                    subject = (store.build)(&chip);
                    start(subject.as_mut());
                    model.reboot();
                    continue;
                }
                let change = model.change(verb);
                let place = (store.name, geometry.name, verb);
                let token = subject
                    .perform(verb, &change)
                    .unwrap_or_else(|failure| panic!("{place:?}: {failure}"));
                if let Some(key) = change.key {
                    let token = token.filter(|_| change.mints);
                    let after = change.after.map(|row| Row {
                        token: token.unwrap_or(row.token),
                        ..row
                    });
                    model.set(key, after);
                }
                assert_eq!(subject.rows(&keys, &model).unwrap(), model.rows, "{place:?}");
            }
            drop(subject);
            let mut subject = (store.build)(&chip);
            subject.mount().unwrap();
            assert_eq!(
                subject.rows(&keys, &model).unwrap(),
                model.rows,
                "{} {}",
                store.name,
                geometry.name
            );
            assert_eq!(chip.borrow().abuse(), None, "{} {}", store.name, geometry.name);
        }
    }
}
