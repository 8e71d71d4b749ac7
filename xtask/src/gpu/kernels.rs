//! The kernels of the tests, as PTX text that the driver compiles. For a simulated driver, which runs no
//! code, a remark says how long each takes: its first parameter.

/// Versions of PTX and targets, in the order in which they are tried: the first is understood by every
/// GPU in use, but a later driver may drop it.
pub(crate) const TARGETS: [(&str, &str); 3] =
    [("6.3", "sm_52"), ("6.3", "sm_75"), ("7.8", "sm_90")];

/// Threads of a block.
pub(crate) const THREADS: u32 = 256;

/// A chain of multiplications, each of which needs the one before: takes as long as it has rounds, in GPU
/// time, whatever else the GPU does in between. Parameters: nanoseconds (for the simulated driver only),
/// rounds, a place of 4 bytes.
pub(crate) const WORK: &str = "work";

/// Watches the GPU's clock for gaps, in which another process had the GPU. Parameters: nanoseconds to
/// watch, least gap in ns, most gaps to keep, and where: their number, then beginning and end of each, as
/// 8-byte words.
pub(crate) const WATCH: &str = "watch";

const WORK_TEXT: &str = "
// hotpot-kernel work first_parameter_ns
.visible .entry work(.param .u64 ns, .param .u64 rounds, .param .u64 place)
{
    .reg .pred %done, %never;
    .reg .b32 %value;
    .reg .b64 %rounds, %place;
    ld.param.u64 %rounds, [rounds];
    ld.param.u64 %place, [place];
    mov.u32 %value, %tid.x;
again:
    setp.eq.u64 %done, %rounds, 0;
    @%done bra end;
    mad.lo.u32 %value, %value, 747796405, 12345;
    mad.lo.u32 %value, %value, 747796405, 12345;
    mad.lo.u32 %value, %value, 747796405, 12345;
    mad.lo.u32 %value, %value, 747796405, 12345;
    sub.u64 %rounds, %rounds, 1;
    bra again;
end:
    setp.eq.u32 %never, %value, 305419896;
    @%never st.global.u32 [%place], %value;
    ret;
}
";

const WATCH_TEXT: &str = "
// hotpot-kernel watch first_parameter_ns
.visible .entry watch(.param .u64 ns, .param .u64 least, .param .u64 most, .param .u64 place)
{
    .reg .pred %small, %full, %more;
    .reg .b64 %ns, %least, %most, %place, %slot, %count, %begin, %before, %now, %gap, %past;
    ld.param.u64 %ns, [ns];
    ld.param.u64 %least, [least];
    ld.param.u64 %most, [most];
    ld.param.u64 %place, [place];
    mov.u64 %count, 0;
    add.u64 %slot, %place, 8;
    mov.u64 %begin, %globaltimer;
    mov.u64 %before, %begin;
look:
    mov.u64 %now, %globaltimer;
    sub.u64 %gap, %now, %before;
    setp.lt.u64 %small, %gap, %least;
    @%small bra next;
    setp.ge.u64 %full, %count, %most;
    @%full bra next;
    st.global.u64 [%slot], %before;
    st.global.u64 [%slot+8], %now;
    add.u64 %slot, %slot, 16;
    add.u64 %count, %count, 1;
next:
    mov.u64 %before, %now;
    sub.u64 %past, %now, %begin;
    setp.lt.u64 %more, %past, %ns;
    @%more bra look;
    st.global.u64 [%place], %count;
    ret;
}
";

/// The whole module for a target.
pub(crate) fn module((version, target): (&str, &str)) -> String {
    format!(".version {version}\n.target {target}\n.address_size 64\n{WORK_TEXT}{WATCH_TEXT}")
}
