//! The abbreviations and words of the languages of Asia and Africa.

use super::rules::{Ordinals, Rules};

pub(super) const RULES: &[Rules] = &[
    Rules {
        codes: "tr az tk crh gag",
        never: "Dr Prof Doç Yrd Av Sn Bn Alb Yzb Bnb Org Tuğg Müh Uzm Op Hz Şti örn bkz Bkz krş Mah Cad Sok Apt Blv Ord Arş Gör \
                Öğr çev Ecz Ank İst Gn Ltd",
        numeric: "No no s sf c cilt md şek tel Tel böl Oca Şub Mar Nis May Haz Tem Ağu Eyl Eki Kas Ara",
        weak: "M.Ö M.S A.Ş T.C Inc Corp Co mln mlr dk sn T.B.M.M",
        strong: "vb vs vd v.b v.s vdğ",
        starters: "bu şu o bir ben sen biz siz onlar bunlar şunlar ve ama fakat ancak ya veya eğer çünkü için ile de da sonra önce şimdi bugün dün \
                   yarın burada orada nerede ne neden niçin nasıl kim hangi kaç her herkes hiç bazı birçok tüm bütün en daha çok evet hayır \
                   belki maalesef ayrıca böylece bununla ardından daha sonra henüz artık yine hatta ise",
        conjunctions: "ve ama fakat ancak veya çünkü ki eğer ya ise",
        ordinals: Ordinals::Lowercase,
        ..Rules::EMPTY
    },
    Rules {
        codes: "hy hyw",
        never: "դոկտ պրոֆ ակադ տ տիկ օր ս.գ գեն ինժ փող հմմտ տես այսինքն",
        numeric: "նկ էջ գլ հատ թ № հ",
        weak: "թթ դ դդ մ.թ.ա մ.թ մլն մլրդ հազ",
        strong: "և.այլն այլն",
        conjunctions: "և ու բայց կամ որ եթե երբ քանի որպեսզի իսկ",
        marks: ":",
        ..Rules::EMPTY
    },
    Rules {
        codes: "ka xmf",
        never: "ბ ქ-ნი ბ-ნი პროფ აკად დოქ გენ ე.ი ე.წ მაგ შდრ იხ წმ ქ დაახლ",
        numeric: "გვ ტ № ნახ თავ ტელ",
        weak: "წ წწ სს ს მლნ მლრდ ათ",
        strong: "ა.შ და.ა.შ ძვ.წ ახ.წ",
        conjunctions: "და მაგრამ ან რომ თუ როცა რადგან ხოლო",
        ..Rules::EMPTY
    },
    Rules {
        codes: "kk ky uz tg tt ba mn ug ce cv",
        never: "проф Проф акад доц ген им ул г т.е мыс мас м-н қ көш даң prof akad dots",
        numeric: "№ б бет сурет кесте т тел ст р betn",
        weak: "ж жж ғ ғғ гг в млн млрд мың б.з.б б.з.д руб сўм кг",
        strong: "т.б т.с.с т.д ж.б д.б b.k",
        starters: "бұл бул бу ол ал мен сен біз сіз олар алар у ва және жана бирақ бірақ бирок онда бүгүн бүгін кеше энэ тэр би бид та мөн тухайн \
                   одоо өнөөдөр бу аммо men u biz ular va lekin ammo ин он ман мо ва аммо",
        conjunctions: "және жана ва бірақ бирок лекин аммо немесе же егер өйткені ба харин боловч va lekin",
        ..Rules::EMPTY
    },
    Rules {
        codes: "ar arb acm acq aeb ajp apc ars ary arz arq",
        never: "د أ م أ.د أ.م.د م.م ا.د ت ص.ب ج.م.ع",
        numeric: "ص ص.ص ج مج ط ع ف",
        weak: "م.ب هـ ش.م.م ش.م",
        strong: "إلخ الخ ...إلخ ق.م",
        speech: "قال قالت سأل سألت صاح صاحت أجاب أجابت رد ردت",
        conjunctions: "و أو ثم لكن ولكن لأن بينما حيث عندما إذا كما لذلك بل حتى الذي التي الذين",
        ..Rules::EMPTY
    },
    Rules {
        codes: "fa pes prs ps pbt ckb azb glk mzn",
        never: "د م ه.ق ه.ش ر.ک ر.ک.ب",
        numeric: "ص ج صص ش",
        weak: "هـ.ش",
        strong: "الخ ق.م",
        speech: "گفت پرسید فریاد پاسخ",
        conjunctions: "و یا اما ولی زیرا چون که تا اگر وقتی هنگامی سپس بنابراین",
        ..Rules::EMPTY
    },
    Rules {
        codes: "ur pnb sd ks",
        never: "ڈ پ م ج ایم بی ڈاکٹ",
        numeric: "ص ",
        weak: "ء",
        strong: "ق.م",
        speech: "کہا پوچھا بولا بولی",
        conjunctions: "اور یا لیکن مگر کیونکہ کہ اگر جب تو تاکہ جبکہ بلکہ جو",
        ..Rules::EMPTY
    },
    Rules {
        codes: "he yi",
        never: "ד פרופ ר עו רח שד ע אינג",
        numeric: "עמ מס סע",
        weak: "בע.מ לפנה.ס",
        strong: "וכו וכד וגו",
        speech: "אמר אמרה שאל שאלה צעק צעקה ענה ענתה לחש לחשה",
        conjunctions: "ו או אבל אך כי אם כאשר כש אלא לכן למרות ש אשר בעוד",
        ..Rules::EMPTY
    },
    Rules {
        codes: "hi ne sa mai bho awa mag hne kok doi",
        never: "डॉ डा प्रो कु पं ए बी सी डी ई एफ एच आई जे के एल एम एन ओ पी क्यू आर एस टी यू वी डब्ल्यू एक्स वाई जेड \
                उदा ले कै सौ चि डाॅ",
        numeric: "नं क्र पृ सं रु ता मो",
        weak: "ई.पू ई.सं लि प्रा",
        strong: "इ वगै",
        speech: "पूछा कहा बोला बोली बोले चिल्लाया चिल्लाई म्हणाला म्हणाली विचारले",
        conjunctions: "और या लेकिन परंतु किंतु मगर क्योंकि कि अगर यदि जब तो ताकि जबकि बल्कि जो आणि पण किंवा कारण की जर \
                       तर र तर तथा वा किनभने",
        marks: "|",
        ..Rules::EMPTY
    },
    Rules {
        codes: "mr",
        never: "डॉ डाॅ प्रो प्रा कु पं रा सौ कै चि उदा बी सी डी एफ जी एच के एल एम एन पी क्यू आर एस टी यू व्ही डब्ल्यू",
        numeric: "क्र पृ नं रु",
        weak: "इ.स ई.स लि",
        strong: "इ वगै",
        conjunctions: "आणि पण किंवा कारण की जर तर परंतु म्हणून व",
        ..Rules::EMPTY
    },
    Rules {
        codes: "bn as mni",
        never: "ডা ড মো মোঃ মি প্রফ এ বি সি ডি ই এফ জি এইচ আই জে কে এল এম এন ও পি কিউ আর এস টি ইউ ভি ডব্লিউ এক্স ওয়াই \
                জেড অধ্যা",
        numeric: "নং পৃ",
        speech: "বললেন বলল জিজ্ঞাসা জিজ্ঞেস",
        weak: "খ্রি লি",
        strong: "",
        conjunctions: "এবং ও আর বা অথবা কিন্তু কারণ যে যদি তবে তাই যখন যেহেতু যা আৰু",
        marks: "|",
        ..Rules::EMPTY
    },
    Rules {
        codes: "pa gu or sat",
        never: "ਡਾ ਪ੍ਰੋ ਸ ਸ੍ਰ ਏ ਬੀ ਸੀ ਡੀ ਐਮ ਐਸ ਕੇ ਪੀ ਆਰ ਟੀ ਜੇ ਐਲ ਐਨ ડૉ ડો પ્રો એ બી સી ડી એમ એસ કે પી આર ટી જે એલ એન ଡ ଡା ପ୍ରଫେ",
        numeric: "ਨੰ ਪੰ નં પૃ ନଂ",
        conjunctions: "ਅਤੇ ਤੇ ਜਾਂ ਪਰ ਕਿਉਂਕਿ ਕਿ ਜੇ ਜਦੋਂ અને કે પણ પરંતુ કારણ જો જ્યારે ଏବଂ କିନ୍ତୁ",
        marks: "|",
        ..Rules::EMPTY
    },
    Rules {
        codes: "ta",
        never: "திரு திருமதி டா பேரா ஏ பி சி டி இ எஃப் ஜி எச் ஐ ஜே ஜெ கே எல் எம் என் ஓ கியூ ஆர் எஸ் யூ வி அ ஆ கா கு சு \
                மு நா ரா தி செ பா",
        numeric: "எண் பக் ரூ",
        weak: "கி.மு கி.பி",
        conjunctions: "மற்றும் ஆனால் அல்லது ஏனெனில் எனவே என்று",
        ..Rules::EMPTY
    },
    Rules {
        codes: "te kn ml",
        never: "డా ప్రొ ఎ బి సి డి ఎం ఎన్ ఎస్ కె పి ఆర్ టి జె ఎల్ వి ಡಾ ಪ್ರೊ ಎ ಬಿ ಸಿ ಡಿ ಎಂ ಎನ್ ಎಸ್ ಕೆ ಪಿ ಆರ್ ಟಿ ಜೆ ಎಲ್ ವಿ ಕು ഡോ പ്രൊഫ എ ബി സി ഡി എം \
                എൻ എസ് കെ പി ആർ ടി ജെ എൽ വി",
        numeric: "నం పే రూ ನಂ ಪು ರೂ നം പേ രൂ",
        weak: "క్రీ.పూ క్రీ.శ ಕ್ರಿ.ಪೂ ಕ್ರಿ.ಶ ക്രി.മു",
        conjunctions: "మరియు కానీ లేదా ఎందుకంటే ಮತ್ತು ಆದರೆ ಅಥವಾ ಏಕೆಂದರೆ എന്നാൽ അല്ലെങ്കിൽ കാരണം പക്ഷേ",
        ..Rules::EMPTY
    },
    Rules {
        codes: "si dv",
        never: "ඩී එම් ඩබ්ලිව් ඒ බී සී එස් ජේ ආර් කේ පී ටී වී එච් එල් එන්",
        numeric: "පි රු",
        weak: "ක්‍රි.පූ ක්‍රි.ව ක්රි.පූ ක්රි.ව පෙ.ව ප.ව",
        conjunctions: "සහ හා නමුත් හෝ මක්නිසාද නිසා",
        ..Rules::EMPTY
    },
    Rules {
        codes: "zh yue wuu cmn lzh nan hak",
        speech: "说 道 问 喊 叫 答 說 問",
        conjunctions: "但 但是 而 而且 因为 所以 如果 虽然 不过 然而 并 并且 或 或者 以及 同时 因此 因為 雖然 不過 並且 同時",
        ..Rules::EMPTY
    },
    Rules {
        codes: "ja",
        conjunctions: "しかし そして また が ので から けれど けれども ため ながら",
        ..Rules::EMPTY
    },
    Rules {
        codes: "ko",
        never: "",
        numeric: "",
        speech: "물었다 말했다 외쳤다 대답했다 소리쳤다",
        conjunctions: "그리고 그러나 하지만 또는 그래서 그런데 때문에 만약 및",
        ..Rules::EMPTY
    },
    Rules {
        codes: "my shn mnw", conjunctions: "နှင့် သို့မဟုတ် သို့သော် ထို့ကြောင့် ပြီး", ..Rules::EMPTY
    },
    Rules {
        codes: "km", never: "ល", conjunctions: "និង ឬ ប៉ុន្តែ ពីព្រោះ ដូច្នេះ", ..Rules::EMPTY
    },
    Rules {
        codes: "th",
        never: "ดร ศ รศ ผศ นพ พญ พล.อ พล.ต พล.ท พ.อ พ.ต พ.ท ร.ต ร.ท ร.อ ด.ช ด.ญ น.ส ม.ร.ว ม.ล พล.ต.อ พล.ต.ท พล.ต.ต พ.ต.อ พ.ต.ท พ.ต.ต จ อ ต ถ ซ บจก บมจ หจก \
                โทร รร มก จุฬา สธ กทม อบต สส ส.ส ส.ว รมว รมต ผบ ผอ น.พ ท.พ ภญ",
        numeric: "พ.ศ ค.ศ ม.ค ก.พ มี.ค เม.ย พ.ค มิ.ย ก.ค ส.ค ก.ย ต.ค พ.ย ธ.ค เลขที่ ข้อ ม หน้า ร.ศ จ.ศ",
        weak: "ก.ม กม ซม มม กก ก.ก มล ล ตร.ม ตร.กม ชม น บ สต จก",
        starters: "ผม ฉัน ดิฉัน เขา เธอ เรา พวกเขา พวกเรา คุณ มัน นี่ นั่น วันนี้ เมื่อวาน พรุ่งนี้ เมื่อคืน อย่างไรก็ตาม นอกจากนี้ ดังนั้น เพราะฉะนั้น ต่อมา หลังจากนั้น \
                   ขณะนี้ ปัจจุบัน ในปี เมื่อ ถ้า หาก ทุกคน ทุก ๆ แม่ พ่อ คุณแม่ คุณพ่อ ช่วย กรุณา โปรด ขอบคุณ ขอโทษ สวัสดี ใคร ทำไม อะไร ปีนี้ ปีที่แล้ว ตอนนี้ สุดท้าย",
        conjunctions: "และ หรือ แต่ ที่ ซึ่ง โดย เพราะ เพื่อ ว่า จึง ก็ แล้ว ของ กับ ด้วย เช่น คือ เนื่องจาก ตลอดจน \
                       รวมทั้ง รวมถึง ทั้ง ได้แก่ อัน ส่วน จน กระทั่ง",
        ..Rules::EMPTY
    },
    Rules {
        codes: "lo", conjunctions: "ແລະ ຫຼື ແຕ່ ທີ່ ເພາະ", ..Rules::EMPTY
    },
    Rules { codes: "bo dz", ..Rules::EMPTY },
    Rules {
        codes: "am ti gez",
        never: "ዶ ፕ ወ ሮ አ ዓ ኮ",
        numeric: "ቁ ገ",
        weak: "ዓ.ም ዓ.ዓ ከክ.በ",
        conjunctions: "እና ወይም ነገር ግን ስለዚህ ምክንያቱም ወይ",
        ..Rules::EMPTY
    },
    Rules {
        codes: "vi",
        never: "TS ThS PGS GS BS KS LS Ths Bs Ks Ts Gs Dr Mr Mrs Ms Đ.c Tp TP Q St vd Vd",
        numeric: "tr t No Tel tel ĐT đt đ",
        weak: "Inc Ltd Co Corp TCN SCN tp q",
        strong: "v.v vv v.v.v",
        starters: "tôi anh chị em ông bà cô chú bạn nó họ chúng ta mình đây đó kia này khi nếu vì nhưng và hoặc tuy do để trong trên dưới \
                   sau trước từ đến với cho của các những một hai mọi mỗi nhiều ai gì đâu sao tại thế có không đã đang sẽ hôm nay \
                   ngày bây hiện theo ngoài tuy nhiên vậy rồi cuối",
        conjunctions: "và nhưng hoặc hay vì nên mà khi nếu tuy để rằng do",
        ..Rules::EMPTY
    },
    Rules {
        codes: "id ms jv su min ban ace bjn bug",
        never: "Dr dr Drs Ir H Hj Prof Tn Ny Nn Sdr Sdri Yth Bpk K.H KH R.A R.M Jl Gg Kab Kec Kel Kol Mayjen Brigjen Letjen Ust mis dgn dg yg a.n u.p \
                spt Dato Tun St ttd",
        numeric: "No no hlm hal jil vol ps ay tel telp Rp Jan Feb Mar Apr Jun Jul Agu Agt Sep Okt Nov Des ms",
        weak: "S.H M.H S.E S.T S.Kom S.Pd M.Sc M.Si M.Hum Ph.D Tbk Inc Ltd Corp Co S.Sos S.M Jr",
        strong: "SM dll dsb dst dkk d.a lsb tsb sb",
        starters: "ini itu dia ia mereka saya aku kami kita kamu anda beliau di ke dari pada dengan untuk dalam oleh karena ketika saat jika \
                   kalau bila dan atau tetapi tapi namun sebelum setelah sesudah sejak sampai menurut meskipun walaupun selain juga lalu \
                   kemudian sekarang kini hari kemarin besok nanti ada tidak bukan belum sudah telah akan apa siapa mana kapan mengapa \
                   kenapa bagaimana semua setiap banyak beberapa para seorang sebuah namun akhirnya akibatnya oleh sebab",
        conjunctions: "dan atau tetapi tapi namun karena ketika jika kalau yang sehingga sedangkan agar supaya meskipun walaupun bahwa",
        ..Rules::EMPTY
    },
    Rules {
        codes: "tl ceb ilo war pag pam",
        never: "Dr Dra G Gng Bb Kgg Prof Sr Sra Atty Engr Gen Kol Sen Rep Gov Pang Mr Mrs Ms St Sta hal Arch Fr",
        numeric: "Blg blg p pp tel No Ene Peb Mar Abr Hun Hul Ago Set Okt Nob Dis",
        weak: "Inc Ltd Corp Co Jr U.S",
        strong: "atbp etc n.u n.h n.g",
        starters: "ang si sina siya sila ako kami tayo ikaw kayo ito iyan iyon ang mga sa kay kung kapag nang ngunit pero at o dahil kaya \
                   noong ngayon bukas kahapon dito diyan doon ano sino saan kailan bakit paano hindi wala may mayroon lahat bawat marami",
        conjunctions: "at o ngunit pero dahil kung kapag kaya habang upang na",
        ..Rules::EMPTY
    },
    Rules {
        codes: "sw rw rn lg ln zu xh sn ny st tn so ha yo ig om wo",
        never: "Dkt Dk Bw Bi Prof Mhe Mh Dr Mr Mrs Ms St Mt k.m m.f Alh Hon Mw Rev Fr Sh",
        numeric: "Na na uk kur simu Nam tel No",
        weak: "K.K B.K k.K b.K S.L.P Inc Ltd Co",
        strong: "n.k.w n.k nk k.w.k k.k",
        conjunctions: "na lakini au kwa kwamba ili kama ingawa kwani ambayo ambaye",
        ..Rules::EMPTY
    },
];
