//! Any order of dropping, on any thread; stops by every means; panics in callbacks.

mod common;

use common::{endless, is_text, model_folder, question, shared, FRANCE};
use dsa_sdk::{
    CancelToken, Channel, Error, ErrorKind, Event, Finish, Image, KvFormat, Model, Operation, OwnedRun, Package,
    Prompt, Run, RunOptions, Runtime, Session, SessionState,
};
use std::any::Any;
use std::future::Future;
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

fn permutations(items: &[usize]) -> Vec<Vec<usize>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, &first) in items.iter().enumerate() {
        let rest: Vec<usize> =
            items.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, &item)| item).collect();
        for mut tail in permutations(&rest) {
            tail.insert(0, first);
            all.push(tail);
        }
    }
    all
}

fn everything() -> Vec<Option<Box<dyn Any + Send>>> {
    let runtime = Runtime::builder().max_threads(1).build().unwrap();
    let package = Package::open(&runtime, model_folder()).unwrap();
    let model = package.load().unwrap();
    let prompt = question(&runtime, FRANCE);
    let options = RunOptions::new().sampling(endless());
    let run = model.session().build().unwrap().into_run(&prompt, &options).ok().unwrap();
    let token = run.cancel_token();
    vec![
        Some(Box::new(runtime)),
        Some(Box::new(package)),
        Some(Box::new(model)),
        Some(Box::new(prompt)),
        Some(Box::new(run)),
        Some(Box::new(token)),
    ]
}

#[test]
fn a_model_is_loaded_as_planned() {
    let runtime = Runtime::builder().max_threads(1).build().unwrap();
    let package = Package::open(&runtime, model_folder()).unwrap();
    let plan = package.plan().context_tokens(512).sessions(2).build().unwrap();
    let summary = plan.summary().unwrap();
    assert!(summary.feasible);
    assert_eq!((summary.context_tokens, summary.sessions), (512, 2));
    assert!(plan.explain().unwrap().contains(&summary.host_bytes.to_string()));
    let model = package.loader().plan(&plan).load().unwrap();
    drop(plan);
    assert_eq!(model.session().build().unwrap().info().unwrap().max_tokens, 512);

    let short = package.plan().host_bytes(4096).leave_host_bytes(1).build().unwrap();
    assert!(!short.summary().unwrap().feasible);
    let failure = package.loader().plan(&short).load().err().unwrap();
    assert_eq!((failure.kind(), failure.available()), (ErrorKind::OverBudget, 4096));

    let kept = |format| package.plan().device("cpu").kv_format(format).build().unwrap().explain().unwrap();
    assert!(kept(KvFormat::Fp8).contains("FP8"));
    assert_ne!(kept(KvFormat::Bf16), kept(KvFormat::Model));

    let named = package.plan().device("cpu:0").context_tokens(512).build().unwrap();
    assert_eq!(named.summary().unwrap().device_bytes, 0);
    let refused = package.plan().device("abacus:0").build().err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::NoDevice);
    assert!(refused.to_string().contains("abacus:0"));
}

#[test]
fn every_order_of_dropping() {
    const PROMPT: usize = 3; // it holds the runtime, and nothing holds it: one place for each order of the others
    for (turn, mut order) in permutations(&[0, 1, 2, 4, 5]).into_iter().enumerate() {
        order.insert(turn % 6, PROMPT);
        let mut objects = everything();
        for index in order {
            objects[index] = None;
        }
    }
}

#[test]
fn every_object_may_be_dropped_on_another_thread() {
    for first in 0..6 {
        let mut objects = everything();
        let one = objects.remove(first);
        let other = thread::spawn(move || drop(one));
        drop(objects);
        other.join().unwrap();
    }
}

#[test]
fn send_and_sync_follow_from_const() {
    fn send_sync_clone<T: Send + Sync + Clone + 'static>() {}
    fn send<T: Send>() {}
    send_sync_clone::<Runtime>();
    send_sync_clone::<Package>();
    send_sync_clone::<Model>();
    send_sync_clone::<Image>();
    send_sync_clone::<CancelToken>();
    fn send_sync<T: Send + Sync>() {}
    send_sync::<Operation>();
    send::<Session>();
    send::<Prompt>();
    send::<Run<'static>>();
    send::<OwnedRun>();
    fn error<T: std::error::Error + Send + Sync + 'static>() {}
    error::<Error>();
    // The negatives are compile_fail examples at Session, Run and Prompt.
}

#[test]
fn a_session_outlives_its_model() {
    let mut chat = {
        let runtime = Runtime::new().unwrap();
        let model = runtime.load(model_folder()).unwrap();
        model.session().build().unwrap()
    };
    assert!(chat.ask(FRANCE).unwrap().contains("Paris"));
}

#[test]
fn dropping_a_run_keeps_what_was_said() {
    let (runtime, model) = shared();
    let mut chat = model.session().build().unwrap();
    for _ in 0..10 {
        let options = RunOptions::new().sampling(endless());
        let mut run = chat.run_with(&question(&runtime, "Story."), &options).unwrap();
        run.by_ref().map(Result::unwrap).find(is_text).unwrap();
    }
    assert!(chat.info().unwrap().num_tokens > 0);
    assert!(chat.ask(FRANCE).unwrap().contains("Paris"));
}

#[test]
fn dropping_a_run_never_waits() {
    let runtime = Runtime::builder().max_threads(1).build().unwrap();
    let model = runtime.load(model_folder()).unwrap();
    let mut chat = model.session().build().unwrap();
    let mut run = chat.run(&question(&runtime, &"word ".repeat(20000))).unwrap();
    run.by_ref().map(Result::unwrap).find(|event| matches!(event, Event::Prefill { .. })).unwrap();
    drop(run);
    // The next step of the prompt is in work, and the session is busy with it.
    assert_eq!(chat.info().unwrap().state, SessionState::Running);
}

#[test]
fn a_token_stops_a_run_from_another_thread() {
    let (runtime, model) = shared();
    let mut chat = model.session().build().unwrap();
    let mut run =
        chat.run_with(&question(&runtime, "Story."), &RunOptions::new().sampling(endless())).unwrap();
    let (token, again) = (run.cancel_token(), run.cancel_token().clone());
    let other = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        token.cancel();
    });
    assert!(run
        .by_ref()
        .map(Result::unwrap)
        .any(|event| matches!(event, Event::Done { finish: Finish::Cancelled, .. })));
    other.join().unwrap();
    drop(run);
    again.cancel(); // after the end: nothing
    assert!(chat.ask(FRANCE).unwrap().contains("Paris"));
}

#[test]
fn an_owned_run_gives_its_session_back() {
    let (runtime, model) = shared();
    let chat = model.session().build().unwrap();
    let mut run = chat.into_run(&question(&runtime, FRANCE), &RunOptions::new()).ok().unwrap();
    run.by_ref().for_each(drop);
    assert!(run.text(Channel::Answer).unwrap().contains("Paris"));
    let chat = run.finish();
    let run =
        chat.into_run(&question(&runtime, "Story."), &RunOptions::new().sampling(endless())).ok().unwrap();
    let mut chat = run.finish(); // in work: stopped
    assert!(chat.ask(FRANCE).unwrap().contains("Paris"));
    let (error, chat) = chat.into_run(&Prompt::new(&runtime).unwrap(), &RunOptions::new()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert!(chat.info().unwrap().num_tokens > 0);
}

#[test]
fn closing_a_model_ends_its_runs() {
    let runtime = Runtime::new().unwrap();
    let model = runtime.load(model_folder()).unwrap();
    let mut chat = model.session().build().unwrap();
    let run = chat.run_with(&question(&runtime, "Story."), &RunOptions::new().sampling(endless())).unwrap();
    assert!(model.close(Some(Duration::from_secs(30))).unwrap());
    let errors: Vec<ErrorKind> = run.filter_map(Result::err).map(|error| error.kind()).collect();
    assert_eq!(errors, [ErrorKind::Closed]);
    assert_eq!(chat.ask("Hello.").unwrap_err().kind(), ErrorKind::Closed);
    assert!(model.close(None).unwrap());
}

#[test]
fn a_panic_in_a_callback_goes_on_in_the_caller() {
    let (runtime, model) = shared();
    let package = Package::open(&runtime, model_folder()).unwrap();
    let load = || package.loader().on_progress(|_| panic!("from the callback")).load().err();
    let panic = catch_unwind(AssertUnwindSafe(load)).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"from the callback"));
    let stopped = package.loader().on_progress(|_| ControlFlow::Break(())).load().err().unwrap();
    assert_eq!(stopped.kind(), ErrorKind::Cancelled);

    let mut chat = model.session().build().unwrap();
    let prompt = question(&runtime, FRANCE);
    let prefill = || chat.prefill(&prompt, |_| panic!("again")).err();
    assert!(catch_unwind(AssertUnwindSafe(prefill)).is_err());
    assert_eq!(chat.info().unwrap().num_tokens, 0);
    assert!(chat.ask(FRANCE).unwrap().contains("Paris"));
}

#[test]
fn eight_threads_with_fifty_runs_each() {
    let (runtime, model) = shared();
    let options = RunOptions::new().max_tokens(3).sampling(dsa_sdk::Sampling::greedy());
    let answer = |index: usize, turn: usize| {
        let mut chat = model.session().build().unwrap();
        let mut run = chat.run_with(&question(&runtime, "Hello."), &options).unwrap();
        if turn % 10 == index {
            run.cancel_token().cancel();
        }
        run.by_ref().for_each(|event| drop(event.unwrap()));
        (run.result().unwrap().finish, run.text(Channel::Answer).unwrap())
    };
    let expected = answer(1, 0).1;
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for index in 0..8 {
            let (answer, expected, failures) = (&answer, &expected, &failures);
            scope.spawn(move || {
                for turn in 0..50 {
                    let (finish, text) = answer(index, turn);
                    let whole = finish == Finish::Length && text == *expected;
                    let stopped = finish == Finish::Cancelled && turn % 10 == index;
                    if !(whole || stopped) {
                        failures.lock().unwrap().push((index, turn, finish, text));
                    }
                }
            });
        }
    });
    assert!(failures.lock().unwrap().is_empty(), "{:?}", failures.lock().unwrap());
}

struct Thread(Mutex<Sender<()>>);

impl Wake for Thread {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().send(());
    }
}

#[test]
fn events_as_futures() {
    let (runtime, model) = shared();
    let (sender, receiver) = channel();
    let waker = Waker::from(Arc::new(Thread(Mutex::new(sender))));
    let mut context = Context::from_waker(&waker);
    let mut chat = model.session().build().unwrap();
    let mut run = chat.run(&question(&runtime, FRANCE)).unwrap();
    let (mut polls, mut done) = (0, false);
    while !done {
        let mut next = run.next_async();
        match Pin::new(&mut next).poll(&mut context) {
            Poll::Ready(Some(event)) => drop(event.unwrap()),
            Poll::Ready(None) => done = true,
            Poll::Pending => receiver.recv_timeout(Duration::from_secs(30)).unwrap(), // woken, or this fails
        }
        polls += 1;
    }
    assert!(polls > 3);
    assert!(run.text(Channel::Answer).unwrap().contains("Paris"));
}

/// The process ends in the middle of an answer: with its own code, and without a word.
#[test]
fn exit_with_a_live_run() {
    const CHILD: &str = "DSA_SDK_TEST_LEAVES";
    if std::env::var_os(CHILD).is_some() {
        let (runtime, model) = shared();
        let options = RunOptions::new().sampling(endless());
        let mut chat = model.session().build().unwrap();
        let mut run = chat.run_with(&question(&runtime, "Story."), &options).unwrap();
        run.by_ref().map(Result::unwrap).find(is_text).unwrap();
        std::process::exit(3);
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "exit_with_a_live_run", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert_eq!((child.status.code(), child.stderr.as_slice()), (Some(3), &[][..]));
}
