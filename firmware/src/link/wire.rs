//! Messages as bytes: CBOR (RFC 8949), each type as one item, structures as arrays of their fields in order.
//!
//! The codec is written for the core's own types, so that an ask on the wire is the ask that the machine gets. Numbers
//! that stand for words of an enumeration are written out here: they are the protocol, and a new word does not compile
//! until it has one.
//!
//! Reading and writing an item are functions of their own, and so are those of each structure: inlined into the one that
//! reads every request they would take half of a small chip's flash, and all of its stack.

use keyfence_core::{AttemptId, Digest, Incarnation, LedgerId, Name, ProcessId, TimeMs, Token, Ttl};
use minicbor::encode::write::Cursor;

use crate::store::NAME_BYTES_MAX;

/// The item `null`: an option that is none.
const NULL: u8 = 0xf6;

/// Writes items into bounded bytes. What does not fit is remembered.
pub(super) struct Out<'a> {
    encoder: minicbor::Encoder<Cursor<&'a mut [u8]>>,
    overflowed: bool,
}

impl<'a> Out<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        Self {
            encoder: minicbor::Encoder::new(Cursor::new(bytes)),
            overflowed: false,
        }
    }

    /// How many bytes were written; `None` if something did not fit.
    pub(super) fn finish(&self) -> Option<usize> {
        (!self.overflowed).then_some(self.encoder.writer().position())
    }

    #[inline(never)]
    pub(super) fn array(&mut self, len: u64) {
        self.overflowed |= self.encoder.array(len).is_err();
    }

    #[inline(never)]
    pub(super) fn number(&mut self, number: u64) {
        self.overflowed |= self.encoder.u64(number).is_err();
    }

    #[inline(never)]
    fn signed(&mut self, number: i64) {
        self.overflowed |= self.encoder.i64(number).is_err();
    }

    #[inline(never)]
    fn flag(&mut self, flag: bool) {
        self.overflowed |= self.encoder.bool(flag).is_err();
    }

    #[inline(never)]
    fn null(&mut self) {
        self.overflowed |= self.encoder.null().is_err();
    }

    #[inline(never)]
    fn text(&mut self, text: &str) {
        self.overflowed |= self.encoder.str(text).is_err();
    }

    #[inline(never)]
    fn bytes(&mut self, bytes: &[u8]) {
        self.overflowed |= self.encoder.bytes(bytes).is_err();
    }
}

/// Reads items; `None` wherever they are not as they are written here.
pub(super) struct In<'a>(minicbor::Decoder<'a>);

impl<'a> In<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(minicbor::Decoder::new(bytes))
    }

    /// Whether everything was read.
    pub(super) fn is_at_end(&self) -> bool {
        self.0.position() == self.0.input().len()
    }

    /// Where the next item begins.
    pub(super) fn position(&self) -> usize {
        self.0.position()
    }

    /// The length of an array.
    pub(super) fn array(&mut self) -> Option<u64> {
        self.0.array().ok()?
    }

    /// An array of exactly this many items.
    #[inline(never)]
    pub(super) fn array_of(&mut self, len: u64) -> Option<()> {
        (self.array()? == len).then_some(())
    }

    #[inline(never)]
    pub(super) fn number(&mut self) -> Option<u64> {
        self.0.u64().ok()
    }

    #[inline(never)]
    fn null(&mut self) -> bool {
        let is_null = self.0.input().get(self.0.position()) == Some(&NULL);
        is_null && self.0.null().is_ok()
    }

    #[inline(never)]
    fn bytes(&mut self) -> Option<&'a [u8]> {
        self.0.bytes().ok()
    }

    #[inline(never)]
    fn text(&mut self) -> Option<&'a str> {
        self.0.str().ok()
    }
}

/// A type with a form on the wire.
pub(super) trait Wire: Sized {
    fn put(&self, out: &mut Out<'_>);
    fn take(from: &mut In<'_>) -> Option<Self>;
}

/// A structure with public fields.
macro_rules! wire_struct {
    ($type:ty { $($field:ident),+ $(,)? }) => {
        impl Wire for $type {
            #[inline(never)]
            fn put(&self, out: &mut Out<'_>) {
                out.array(const { [$(stringify!($field)),+].len() as u64 });
                $(self.$field.put(out);)+
            }
            #[inline(never)]
            fn take(from: &mut In<'_>) -> Option<Self> {
                from.array_of(const { [$(stringify!($field)),+].len() as u64 })?;
                Some(Self { $($field: Wire::take(from)?),+ })
            }
        }
    };
}

/// An enumeration without fields, as a number.
macro_rules! wire_words {
    ($type:ty { $($code:literal => $variant:ident),+ $(,)? }) => {
        impl Wire for $type {
            fn put(&self, out: &mut Out<'_>) {
                out.number(match self { $(Self::$variant => $code,)+ });
            }
            fn take(from: &mut In<'_>) -> Option<Self> {
                match from.number()? {
                    $($code => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

/// An enumeration whose variants have fields: an array of its number and its fields.
macro_rules! wire_enum {
    ($type:ty {
        $($code:literal => $variant:ident $(($($field:ident),+))? $({ $($named:ident),+ })?),+ $(,)?
    }) => {
        impl Wire for $type {
            #[inline(never)]
            fn put(&self, out: &mut Out<'_>) {
                match self {
                    $(Self::$variant $(($($field),+))? $({ $($named),+ })? => {
                        out.array(const { wire::items(&[$($(stringify!($field)),+)? $($(stringify!($named)),+)?]) });
                        out.number($code);
                        $($($field.put(out);)+)?
                        $($($named.put(out);)+)?
                    })+
                }
            }
            #[inline(never)] // inlined into one another they take several times the code
            fn take(from: &mut In<'_>) -> Option<Self> {
                let len = from.array()?;
                match (from.number()?, len) {
                    $(($code, len)
                        if len == const {
                            wire::items(&[$($(stringify!($field)),+)? $($(stringify!($named)),+)?])
                        } =>
                    {
                        Some(Self::$variant
                            $(($({ let $field = Wire::take(from)?; $field }),+))?
                            $({ $($named: Wire::take(from)?),+ })?)
                    })+
                    _ => None,
                }
            }
        }
    };
}
pub(super) use {wire_enum, wire_struct, wire_words};

/// How many items a variant with these fields is.
pub(super) const fn items(fields: &[&str]) -> u64 {
    1 + fields.len() as u64
}

impl Wire for bool {
    fn put(&self, out: &mut Out<'_>) {
        out.flag(*self);
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        from.0.bool().ok()
    }
}

macro_rules! wire_unsigned {
    ($($type:ty),+) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Out<'_>) {
                out.number(u64::from(*self));
            }
            fn take(from: &mut In<'_>) -> Option<Self> {
                from.number()?.try_into().ok()
            }
        }
    )+};
}
wire_unsigned!(u8, u16, u32, u64);

impl Wire for i8 {
    fn put(&self, out: &mut Out<'_>) {
        out.signed(i64::from(*self));
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        from.0.i8().ok()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Out<'_>) {
        match self {
            Some(value) => value.put(out),
            None => out.null(),
        }
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        if from.null() {
            Some(None)
        } else {
            T::take(from).map(Some)
        }
    }
}

impl<const N: usize> Wire for [u8; N] {
    fn put(&self, out: &mut Out<'_>) {
        out.bytes(self);
    }
    #[inline(never)]
    fn take(from: &mut In<'_>) -> Option<Self> {
        from.bytes()?.try_into().ok()
    }
}

impl<const N: usize> Wire for heapless::Vec<u8, N> {
    fn put(&self, out: &mut Out<'_>) {
        out.bytes(self);
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        Self::from_slice(from.bytes()?).ok()
    }
}

impl<const N: usize> Wire for heapless::String<N> {
    fn put(&self, out: &mut Out<'_>) {
        out.text(self);
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        Self::try_from(from.text()?).ok()
    }
}

impl Wire for Name {
    /// A longer one than a kiosk keeps does not fit: who sends it is told before anything is sent.
    fn put(&self, out: &mut Out<'_>) {
        out.overflowed |= self.as_str().len() > NAME_BYTES_MAX;
        out.text(self.as_str());
    }
    #[inline(never)]
    fn take(from: &mut In<'_>) -> Option<Self> {
        Self::new(from.text()?).ok()
    }
}

macro_rules! wire_number {
    ($($type:ty: $get:ident, $new:ident);+ $(;)?) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Out<'_>) {
                out.number(self.$get());
            }
            fn take(from: &mut In<'_>) -> Option<Self> {
                Self::$new(from.number()?)
            }
        }
    )+};
}
wire_number! {
    Token: get, presented;
    Incarnation: get, presented;
    TimeMs: as_ms, new;
    Ttl: as_ms, from_ms;
}

macro_rules! wire_id {
    ($($type:ty),+) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Out<'_>) {
                out.bytes(self.as_bytes());
            }
            fn take(from: &mut In<'_>) -> Option<Self> {
                Wire::take(from).map(Self::from_bytes)
            }
        }
    )+};
}
wire_id!(ProcessId, AttemptId, LedgerId, Digest);
