//! The image of every board: how large it is, and that it keeps off what the kiosk keeps in the same flash.

use keyfence::emulator::Image;
use keyfence_tests::boards::{BOARDS, build};

#[test]
fn every_board_builds_is_small_and_keeps_off_identity_and_journal() {
    for board in &BOARDS {
        let image = Image::read(&build(board, "product").unwrap()).unwrap();
        let ends = image.segments().iter().map(|(at, bytes)| at + bytes.len() as u32);
        let end = ends.max().unwrap();
        let first = image.segments().iter().map(|(at, _)| *at).min().unwrap();
        let statics = image.symbol("__euninit").unwrap() - image.symbol("__sdata").unwrap();
        let stack = image.symbol("_stack_start").unwrap() - image.symbol("_stack_end").unwrap();
        let bytes = end - first;
        println!(
            "{}: {bytes} bytes of at most {}, static RAM {statics}, stack {stack}",
            board.name, board.image_bytes_max
        );
        assert_eq!(
            first, board.flash.start,
            "{}: it starts where the chip starts",
            board.name
        );
        assert!(bytes <= board.image_bytes_max, "{}: {bytes} bytes", board.name);
        let (identity, journal) = (image.identity().unwrap(), image.journal().unwrap());
        assert!(end <= identity.start, "{}", board.name);
        assert_eq!(identity.end - identity.start, 2 * board.page_bytes, "{}", board.name);
        assert!(identity.end <= journal.start, "{}", board.name);
        assert_eq!(journal.end, board.flash.end, "{}", board.name);
        for edge in [identity.start, journal.start, journal.end] {
            assert!(edge.is_multiple_of(board.page_bytes), "{}: {edge:#x}", board.name);
        }
        assert!((journal.end - journal.start) / board.page_bytes >= 8, "{}", board.name);
    }
}
