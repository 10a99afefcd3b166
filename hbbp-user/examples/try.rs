use hbbp_user::collect::*;
fn main() {
    let t = std::time::Instant::now();
    let plan = Plan { scope: Scope::System, choice: event::Choice::default(), kernel: object::KernelCounts::Together, map_entries: None };
    let mut c = Collector::open(&plan).unwrap();
    println!("open {:?}", t.elapsed());
    let w = c.text_window().unwrap();
    let mut buf = vec![0u8; 1 << 20];
    let t1 = std::time::Instant::now();
    println!("{} {:?}", w.read(hbbp_user::addr::Va(0xffffffff81000000), &mut buf), t1.elapsed());
    println!("{:02x?}", &buf[..32]);
    c.enable().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    let r = c.records();
    println!("records {} unread {}", r.records.len(), r.unread);
    for r in r.records.iter().take(12) { println!("{r:?}"); }
    let t1 = std::time::Instant::now();
    let totals = { let d = c.drain().unwrap(); println!("drain {} {:?} hits {}", d.len(), t1.elapsed(), d.iter().map(|d| d.1.hits).sum::<u64>()); for e in d.iter().take(5) { println!("{e:x?}"); } let h: u64 = d.iter().map(|d| d.1.hits).sum(); (c.stop().unwrap(), h) };
    let d = c.drain().unwrap();
    println!("last {}", d.iter().map(|d| d.1.hits).sum::<u64>() + totals.1);
    println!("{:#?}", totals.0);
    println!("{:?} {:?}", totals.0.events[0].due(), totals.0.events[0].runs);
}
