//! Structs lie as the header says, and as the library that is loaded says.

use dsa_sdk_sys::*;
use std::ffi::CStr;
use std::mem::{size_of, MaybeUninit};
use std::ptr::addr_of;

struct Member {
    name: &'static str,
    offset: usize,
    size: usize,
}

struct Layout {
    name: &'static str,
    size: usize,
    members: Vec<Member>,
}

fn size_of_pointee<T>(_: *const T) -> usize {
    size_of::<T>()
}

/// Compares structs with what the generator found, and answers what it found.
macro_rules! layouts {
    ($($name:ident $size:literal: $($field:ident $offset:literal $bytes:literal),+;)+) => {
        vec![$({
            let value = MaybeUninit::<$name>::uninit();
            let base = value.as_ptr();
            assert_eq!(size_of::<$name>(), $size, stringify!($name));
            let mut members = Vec::new();
            $(
                let field = unsafe { addr_of!((*base).$field) };
                assert_eq!(field as usize - base as usize, $offset, stringify!($name.$field));
                assert_eq!(size_of_pointee(field), $bytes, stringify!($name.$field));
                let name = stringify!($field).trim_start_matches("r#");
                members.push(Member { name, offset: $offset, size: $bytes });
            )+
            Layout { name: stringify!($name), size: $size, members }
        }),+]
    };
}

fn layouts() -> Vec<Layout> {
    include!("layout.inc")
}

#[test]
fn structs_lie_as_the_header_says() {
    assert!(layouts().len() > 15);
}

#[test]
fn structs_lie_as_the_library_says() {
    let json = unsafe { CStr::from_ptr(dsa_abi_json()) }.to_str().expect("UTF-8");
    for layout in layouts() {
        let begin = json.find(&format!("\"{}\": {{\"size\": {},", layout.name, layout.size));
        let begin = begin.unwrap_or_else(|| panic!("{} of {} bytes", layout.name, layout.size));
        let body = &json[begin..];
        let body = &body[..body.find("\n      }").expect("its end")];
        for member in layout.members {
            let text =
                format!("\"{}\": {{\"offset\": {}, \"size\": {},", member.name, member.offset, member.size);
            assert!(body.contains(&text), "{}: {text}", layout.name);
        }
    }
}

#[test]
fn the_library_is_the_one_that_was_built_for() {
    let version = format!("{DSA_VERSION_MAJOR}.{DSA_VERSION_MINOR}.{DSA_VERSION_PATCH}");
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    assert_eq!(unsafe { dsa_version() } / 10000, DSA_VERSION_MAJOR);
    assert!(unsafe { dsa_api_level() } >= DSA_API_LEVEL);
}

#[test]
fn prepared_structs_are_zero_but_their_size() {
    let event = dsa_event::init();
    assert_eq!(event.struct_size as usize, size_of::<dsa_event>());
    assert_eq!((event.r#type, event.text.len, event.done), (0, 0, 0));
}
