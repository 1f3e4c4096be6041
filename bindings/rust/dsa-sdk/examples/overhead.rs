//! overhead.rs: what a streamed token costs in Rust: overhead MODEL. Prints nanoseconds; see tests/bench/overhead.
use dsa_sdk::{Error, Event, Prompt, RunOptions, Runtime};
use std::time::Instant;

fn main() -> Result<(), Error> {
    let folder = std::env::args().nth(1).unwrap_or_default();
    let runtime = Runtime::new()?;
    let mut chat = runtime.load(folder)?.session().build()?;
    let prompt = Prompt::new(&runtime)?.user("Hello.")?;
    let (mut tokens, begin) = (0_u32, Instant::now());
    for event in chat.run_with(&prompt, &RunOptions::new().max_tokens(1))? {
        if let Event::Text { text, .. } = event? {
            tokens += u32::from(text == " word");
        }
    }
    println!("{:.1}", begin.elapsed().as_nanos() as f64 / f64::from(tokens));
    Ok(())
}
