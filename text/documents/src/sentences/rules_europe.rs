//! The abbreviations and words of the languages of Europe.

use super::rules::{Ordinals, Rules};

/// What several languages have, for a text of an unknown language or of one without data.
pub(super) const UNKNOWN: Rules = Rules {
    never: "Mr Mrs Ms Dr dr Prof prof St Sr Sra Mme M Mgr Gen Col Sen Hon Rev vs e.g i.e z.B d.h bzw ca approx cf \
            p.ex p.ej ung ing Ing Dipl z.K т.е т.к проф акад",
    numeric: "No Nr nr no Fig fig Vol vol Art art p pp S Abb Kap chap cap pág pag str Jan Feb Mar Apr Aug Sep Sept Oct Okt Nov Dec Dez",
    weak: "Inc Ltd Corp Co Jr U.S U.K U.N S.A",
    strong: "etc usw ecc itd a.m p.m т.д т.п др",
    starters: "the a an he she it we they i this that these in on at but and der die das er sie es wir ich ein eine in \
               im am le la les il elle un une nous vous je ce cette el los las él ella en pero o os as um uma",
    ..Rules::EMPTY
};

pub(super) const RULES: &[Rules] = &[
    Rules {
        codes: "en",
        never: "Mr Mrs Ms Mx Messrs Dr Drs Prof Mt Ft Gen Col Maj Capt Cpt Lt Cmdr Sgt Cpl Pvt Adm Brig Gov Sen Rep Reps \
                Sens Hon Rev Fr Msgr Supt Insp Atty Amb Pres Det vs viz e.g i.e eg ie cf approx est ca ibid resp incl \
                excl encl abbr pron Gens Cols Rt.Hon Mlle Mme",
        numeric: "No Nos Fig Figs Vol Vols Ch chap Sec sec Art art Eq Eqs p pp para pg Ex Tab Nr no fig vol Jan Feb Mar Apr \
                  Jun Jul Aug Sep Sept Oct Nov Dec Op op Pt Ref refs Ver v §",
        weak: "Inc Ltd Corp Co Cos Bros LLC Jr Sr Esq Ave Blvd Rd St Ste Apt Dept Univ Assn Bldg Hwy U.S U.K U.N E.U \
               U.S.A U.S.S.R D.C Ph.D M.D B.A M.A B.Sc M.Sc Ariz Calif Colo Conn Del Fla Ga Ill Ind Kan Ky La Md Mass \
               Mich Minn Miss Mo Mont Neb Nev Okla Ore Pa Tenn Tex Va Vt Wash Wis Wyo Mon Tue Tues Wed Thu Thurs Fri \
               Sat min max avg ed eds trans Plc ft lb oz",
        strong: "etc p.m a.m pm am al B.C A.D B.C.E C.E",
        starters: "the a an this that these those he she it we they i you his her its our their my your there here what who \
                   when where why how which if in on at by for from with after before during since while although though because \
                   as to of and but or so yet however then now once no not all some many most each every one two both another \
                   such only even also still until under over between among despite according let please do does did is are was \
                   were have has had can could will would should may might must everyone nothing something today yesterday \
                   tomorrow later meanwhile finally first next instead unfortunately perhaps maybe it's that's he's she's",
        speech: "said says asked asks replied replies cried shouted whispered answered muttered yelled exclaimed called added \
                 laughed screamed wondered sighed snapped began",
        conjunctions: "and but or nor because although though while whereas since unless until if when where which who that so \
                       after before however therefore",
        ..Rules::EMPTY
    },
    Rules {
        codes: "de lb gsw nds",
        never: "Dr Drs Prof Hr Hrn Fr Frl Dipl Ing Mag Hl hl St Frhr Gebr Geb geb gest verh z.B z.T d.h u.a.m u.U o.Ä.s i.d.R z.Zt \
                z.Hd i.A i.V i.e.S bzw ca vgl evtl ggf sog inkl exkl zzgl abzgl insb insbes bes allg bspw jew jährl tägl wiss vorl \
                zw Rer rer nat phil jur h.c med habil dipl lat griech engl frz dt österr schweiz röm kath evang ev \
                 m.E m.W u.v.a v.a gem lt max min mind Ges Abt Red Hrsg Hg Übers Nachf Stellv stv Kfm kfm techn \
                Maj Hptm Lt Reg d z u v i s.o s.u o.g u.g ehem eigtl entspr betr bez Sen",
        numeric: "Nr Nrn Abb Kap S Bd Bde Art Abs Anm Tab Ziff Zi Fn Aufl Jg Vers Jan Feb Mär Apr Jun Jul Aug Sep Sept Okt Nov \
                  Dez Par Lit Pos Rn Rdnr Hs Tel Mo Di Mi Do Sa So",
        weak: "Str str Std Min Sek Mio Mrd Tsd Mill St.Gallen Co Inc Ltd Corp e.V u.a o.ä o.Ä u.ä u.Ä U.S u.dgl dgl jr \
               sen jun Jh Jhd Jhdt Pkt Stk Pl Hbf Bhf a.M a.D",
        strong: "usw etc uvm usf u.s.w ff f u.v.m v.Chr n.Chr",
        starters: "der die das den dem des ein eine einen einem einer eines er sie es wir ich ihr du man mein meine sein seine \
                   ihre unser unsere dies diese dieser dieses jene jeder jede jedes in im am an auf aus bei beim mit nach von vom vor \
                   zu zum zur über unter durch für gegen ohne um während wegen seit bis und aber oder doch denn sondern auch nur noch \
                   schon so dann da dort hier heute gestern morgen nun jetzt danach deshalb daher trotzdem dennoch dabei damit \
                   wenn als ob weil obwohl dass wie was wer wo wann warum wohin woher nicht kein keine alle alles viele einige \
                   manche beide ist sind war waren hat haben hatte wird werden wurde wurden kann können soll bitte ja nein später \
                   leider vielleicht außerdem allerdings insgesamt zunächst schließlich zuerst bereits laut erst",
        conjunctions: "und aber oder denn sondern weil obwohl während dass damit wenn als ob bevor nachdem sodass jedoch wobei \
                       sowie der die das",
        ordinals: Ordinals::Capitalized,
        ..Rules::EMPTY
    },
    Rules {
        codes: "fr oc wa br co",
        never: "M MM Mgr Dr Drs Pr Prof Me Mes Vve St Ste p.ex par.ex c.-à-d c.à.d cf ex env vs Gal Col Cdt Cap Cne Lt Sgt Adj Ing \
                apr av approx incl resp Éd éd tél Tél S.M S.A.R MMmes Mm",
        numeric: "n no nos p pp chap fig art vol t vers sect § al.n Fig Chap Art Vol No N janv févr avr juil sept oct \
                  nov déc pl ill ann",
        weak: "S.A S.A.R.L Cie Inc Ltd Corp Co bd Bd boul U.S éd.rev min sec max hab coll trad Jr Dép dép al",
        strong: "etc J.-C av.J.-C apr.J.-C",
        starters: "le la les l un une des du de d il elle ils elles on nous vous je j tu ce c cet cette ces ça cela celui son sa ses \
                   leur leurs mon ma mes notre nos votre vos qui que qu quoi quand où comment pourquoi combien quel quelle quels \
                   quelles si s et mais ou donc or ni car alors ainsi aussi puis ensuite enfin après avant pendant depuis lors lorsque \
                   dans en à au aux sur sous par pour avec sans chez entre vers selon malgré grâce tout tous toute toutes chaque \
                   plusieurs certains aucun personne rien est sont était a ont n ne y hier demain maintenant ici là voici voilà \
                   cependant toutefois pourtant peut parce puisque comme même plus moins très bien oui non merci",
        conjunctions: "et mais ou donc or ni car que qui quand lorsque si comme puisque parce alors tandis afin où dont",
        ..Rules::EMPTY
    },
    Rules {
        codes: "es ast an eu",
        never: "sr sra sres srta dr dra prof profa lic gral Sr Sra Sres Sras Srta D Dª Dña Dr Dra Dres Prof Profa Ud Uds Vd Vds Gral Cnel Cap Tte Sgto Lic Licda Ing Arq Mons Fr Sto Sta \
                Excmo Excma Ilmo Ilma Rvdo p.ej ej vs cf aprox ca Av Avda Pza Pdte c Dir Gob Pbro Hno Hna Mtro Mtra Lcdo Lcda Abg RR CC JJ FF",
        numeric: "n núm num no nº pág págs p pp art arts cap fig vol t tel tfno párr ene feb mar abr jun jul ago sep sept oct nov dic \
                  Núm Art Fig Vol Pág",
        weak: "S.A S.L EE.UU EE.UU.A Cía Cia Inc Ltd Corp Co Jr dpto depto máx mín izq dcha S.M S.A.R U.S RR.HH CC.OO \
               JJ.OO FF.AA",
        strong: "etc a.m p.m etcétera al a.C d.C a.e.c",
        starters: "el la los las lo un una unos unas él ella ellos ellas yo tú usted ustedes nosotros se me te nos le les este esta \
                   estos estas ese esa esos esas esto eso aquel aquella su sus mi mis tu nuestro nuestra que qué quien quién cuando \
                   cuándo donde dónde como cómo por para con sin en de del al a ante bajo desde durante entre hacia hasta según sobre \
                   tras y e o u pero sino aunque si porque pues así también además entonces luego después antes ahora hoy ayer mañana \
                   aquí allí ya no sí nunca siempre todo todos toda todas cada algunos algunas muchos muchas varios ninguno nadie nada \
                   hay era es son fue fueron ha han había está están estaba tiene sin embargo quizá quizás tal solo mientras otro otra",
        conjunctions: "y e o u pero sino aunque porque que cuando mientras si como pues donde quien cual",
        ..Rules::EMPTY
    },
    Rules {
        codes: "ca",
        never: "sr sra dr dra prof Sr Sra Srs Dr Dra Prof Il·lm Excm St Sta p.ex aprox cf Av Pl Ctra Gral vs C",
        numeric: "núm pàg pàgs p pp art cap fig vol tel gen febr set oct nov des",
        weak: "S.A S.L EUA Inc Ltd EE.UU",
        strong: "etc a.C d.C",
        starters: "el la els les l un una uns unes ell ella ells jo tu nosaltres es s en aquest aquesta aquests això el seu la seva \
                   que què qui quan on com per amb sense a de d del al i o però si perquè també després abans ara avui ahir demà \
                   aquí no sí tot tots cada hi era és són va ha han",
        conjunctions: "i o però sinó perquè que quan mentre si com on qui doncs",
        ..Rules::EMPTY
    },
    Rules {
        codes: "pt gl",
        never: "sr sra srs srta dr dra prof profa eng Sr Sra Srs Srta Dr Dra Drs Prof Profa Exmo Exma Eng Arq D Pe Fr Gen Cel Cap Ten Sgto Maj Sto Sta S p.ex ex aprox vs cf Av R \
                Mons Rev Lic Dir Gov Min Dep Adv Il.mo V.Exa V.Ex",
        numeric: "n nº núm no pág págs p pp art arts cap fig vol t tel séc jan fev mar abr jun jul ago set out nov dez \
                  Art Fig Vol",
        weak: "S.A Ltda Lda Cia Inc Ltd Corp E.U.A EUA Jr máx mín depto U.S",
        strong: "etc a.m p.m al a.C d.C",
        starters: "o a os as um uma uns umas ele ela eles elas eu tu você vocês nós se me lhe este esta estes estas esse essa isso isto \
                   aquele aquela seu sua seus suas meu minha nosso nossa que quem quando onde como por para com sem em no na nos nas \
                   de do da dos das ao à ante até desde durante entre sobre sob segundo após e ou mas porém contudo embora porque \
                   pois assim também além então depois antes agora hoje ontem amanhã aqui ali já não sim nunca sempre tudo todo todos \
                   toda todas cada alguns algumas muitos muitas vários nenhum ninguém nada há era é são foi foram tem está estava \
                   talvez apesar enquanto outro outra",
        conjunctions: "e ou mas porém que quando enquanto se como pois porque onde embora",
        ..Rules::EMPTY
    },
    Rules {
        codes: "it scn lmo fur vec lij sc",
        never: "sig sigg dott prof avv geom mons sen rag Sig Sigg Sig.ra Sig.na Sigra Dott Dr Dott.ssa Dr.ssa Prof Prof.ssa Avv Ing Arch Geom Rag On Sen Gen Col Cap Ten Mar Mons Sac \
                S SS Ss Spett Egr Gent Gent.ma Preg Ill.mo p.es es ad.es cfr cf ca vs Rev Min Pres dir Cav Comm",
        numeric: "n nn num N pag pagg p pp art artt cap capp fig figg vol tel sez par tab gen feb mar apr mag giu lug ago set sett ott nov dic \
                  Art Fig Vol sec t",
        weak: "S.p.A S.r.l S.A Inc Ltd Corp U.S.A Jr max min ed trad all.n U.S s.l.m",
        strong: "ecc etc a.m p.m al a.C d.C",
        starters: "il lo la i gli le l un uno una egli lui lei loro io tu noi voi si mi ti ci vi questo questa questi queste quello \
                   quella ciò suo sua mio mia nostro nostra che chi quando dove come perché cosa qual quale di del della dei delle a al \
                   alla ai alle da dal dalla in nel nella nei con su sul sulla per tra fra senza dopo prima durante secondo verso e ed \
                   o ma però anche se poi allora così quindi infatti inoltre tuttavia oggi ieri domani adesso ora qui là già non sì no \
                   mai sempre tutto tutti tutta tutte ogni alcuni alcune molti molte nessuno niente c è era sono fu ha hanno aveva \
                   forse mentre nonostante altro altra",
        conjunctions: "e ed o ma però che quando mentre se come poiché perché dove cui quindi",
        ..Rules::EMPTY
    },
    Rules {
        codes: "nl af fy li vls",
        never: "dhr Dhr mevr Mevr mw Mw mr Mr mrs Mrs dr Dr drs Drs prof Prof ir Ir ing ds Ds St Gebr bijv bv b.v d.w.z dwz m.b.t t.a.v \
                i.v.m i.p.v m.a.w o.a o.l.v n.a.v t.o.v z.g zgn resp evt ca incl excl vgl ong vs max min Chr gem Gem d.m.v t.g.v i.h.b \
                i.s.m p.a u.a Kol Gen Kapt Lt Ing",
        numeric: "nr nrs blz p pp art afb hfst dl fig par jan feb mrt apr jun jul aug sep sept okt nov dec tel vol Nr Art Afb",
        weak: "N.V B.V Inc Ltd Co Corp str U.S jr sr Jr Sr red",
        strong: "enz etc e.d e.a a.m p.m v.Chr n.Chr",
        starters: "de het een hij zij ze wij we ik jij je u jullie dit dat deze die er hun zijn haar mijn onze ons men wat wie waar \
                   wanneer waarom hoe welke in op aan bij met van voor naar uit over onder door tegen tot na om en maar of want dus \
                   toch ook nog al dan daar hier nu toen vandaag gisteren morgen daarna daarom later eerst als omdat hoewel terwijl \
                   zodra sinds volgens tijdens zonder niet geen alle alles veel enkele sommige is was waren heeft had hebben wordt \
                   werd kan kon moet zou misschien helaas bovendien echter inmiddels ja nee t s",
        conjunctions: "en maar of want dus omdat hoewel terwijl dat die als toen zodat nadat voordat",
        ..Rules::EMPTY
    },
    Rules {
        codes: "sv fo",
        never: "hr Hr fr Fr dr Dr prof Prof bl.a t.ex dvs d.v.s s.k f.d fd ca resp jfr ev inkl exkl t.o.m fr.o.m m.a.o p.g.a pga o.d.a \
                St S:t S:ta Gen Kapt Lt ing Ing civ.ing tekn med.dr jur vs",
        numeric: "nr Nr s sid fig bd kap st.nr tel jan febr feb mar apr jun jul aug sept sep okt nov dec art § p vol",
        weak: "Inc Ltd Co Corp st kl jr sr U.S min max tim",
        strong: "osv o.s.v m.m mm m.fl etc o.d e.d dyl o.dyl f.Kr e.Kr",
        starters: "det den de en ett han hon jag vi ni du man detta denna dessa där här hans hennes deras min mitt mina vår vårt våra vad vem \
                   var när varför hur vilken vilket i på vid med av för från till under över efter före mellan om och men eller så \
                   också även sedan då nu idag igår imorgon därefter därför ändå dock som att medan eftersom innan enligt trots \
                   inte ingen inget alla allt många några är hade har blev blir kan kunde ska skulle måste kanske tyvärr dessutom ja nej",
        conjunctions: "och men eller så att som medan eftersom innan om när för därför",
        ..Rules::EMPTY
    },
    Rules {
        codes: "da",
        never: "hr Hr fr Fr frk Frk dr Dr prof Prof bl.a f.eks fx d.v.s dvs ca inkl ekskl jf iflg mht m.h.t pga p.g.a ift i.f.t evt tidl \
                vedr nuv St Skt Gen Kapt ing Ing cand stud dir red adm pr vs s.k såk",
        numeric: "nr Nr s kap fig bd art stk tlf jan feb febr mar apr jun jul aug sep sept okt nov dec § pkt",
        weak: "Inc Ltd Co Corp A/S kl jr sr U.S min max mio mia",
        strong: "osv o.s.v mv m.v m.m mm m.fl etc o.l o.lign lign f.Kr e.Kr",
        starters: "det den de en et han hun jeg vi i du man dette denne disse der her hans hendes deres min mit mine vores hvad hvem hvor \
                   hvornår hvorfor hvordan hvilken på ved med af for fra til under over efter før mellem om og men eller så også selv \
                   siden da nu dag går derefter derfor alligevel dog som at mens fordi inden ifølge trods ikke ingen intet alle alt mange \
                   nogle er var havde har blev bliver kan kunne skal skulle må måske desværre desuden ja nej",
        conjunctions: "og men eller så at som mens fordi inden hvis når da for",
        ordinals: Ordinals::Lowercase,
        ..Rules::EMPTY
    },
    Rules {
        codes: "nb nn no",
        never: "hr Hr fr Fr frk dr Dr prof Prof bl.a f.eks dvs d.v.s ca inkl ekskl jf jfr iflg ifm pga p.g.a ev evt tidl vedr St Gen Kapt ing Ing \
                siv.ing adm dir red pr vs mht osb såk s.k t.o.m",
        numeric: "nr Nr s kap fig bd art tlf jan feb febr mar apr jun jul aug sep sept okt nov des § pkt",
        weak: "Inc Ltd Co Corp A/S kl jr sr U.S min maks mill mrd",
        strong: "osv o.s.v mv m.v m.m mm m.fl etc o.l f.Kr e.Kr",
        starters: "det den de en et ei han hun jeg eg vi i du man dette denne disse der her hans hennes deres min mitt mine vår vårt våre hva hvem \
                   hvor når hvorfor hvordan hvilken på ved med av for fra til under over etter før mellom om og men eller så også \
                   siden da nå dag går deretter derfor likevel som at mens fordi innen ifølge trass ikke ingen alle alt mange \
                   noen er var hadde har ble blir kan kunne skal skulle må kanskje dessverre dessuten ja nei",
        conjunctions: "og men eller så at som mens fordi innen hvis når da for",
        ordinals: Ordinals::Lowercase,
        ..Rules::EMPTY
    },
    Rules {
        codes: "is",
        never: "hr fr dr Dr próf t.d þ.e þ.e.a.s m.a u.þ.b ca sr st s.k a.m.k þ.á.m skv sbr",
        numeric: "nr bls kl gr mgr jan feb mar apr jún júl ágú sep sept okt nóv des",
        weak: "hf ehf Inc Ltd",
        strong: "o.s.frv o.fl o.þ.h etc f.Kr e.Kr",
        starters: "það hann hún þeir þær þau ég við þið þú þetta þessi þar hér í á með af um frá til eftir fyrir og en eða svo nú þá ekki \
                   allir er var hefur sem þegar hvað hver hvar",
        conjunctions: "og en eða að sem þegar því",
        ordinals: Ordinals::Lowercase,
        ..Rules::EMPTY
    },
    Rules {
        codes: "fi",
        never: "toht prof Prof esim ns nk ent synt vrt ts so n rva alk hra rtv fil maist lis dos ao apul tk \
                 vs johd",
        numeric: "s nro Nro nr Nr klo kpl art tel puh § ks",
        weak: "Oy Inc Ltd Co Corp milj mrd min",
        strong: "jne yms ym tms mm ynnä jms etc eKr jKr e.Kr j.Kr",
        starters: "se ne hän he minä sinä me te tämä nämä tuo nuo siellä täällä tässä siinä kun jos koska vaikka mutta ja tai sekä niin \
                   myös silti sitten nyt tänään eilen huomenna missä mitä mikä kuka ketä milloin miksi miten onko ei en emme eivät on oli \
                   ovat olivat kaikki moni monet jokainen joku ehkä valitettavasti lisäksi kuitenkin myöhemmin ensin kyllä",
        conjunctions: "ja mutta tai sekä että koska vaikka kun jos joka jotka joten",
        ordinals: Ordinals::Lowercase,
        ..Rules::EMPTY
    },
    Rules {
        codes: "et",
        never: "hr pr dr Dr prof Prof lp nn nt näit s.o st sh u ca kd vt vrd hrl snd srn mag",
        numeric: "nr Nr lk tel kl art ptk jaan veebr sept okt nov dets §",
        weak: "Inc Ltd mln mld",
        strong: "jne jm jt jms jpt etc e.m.a m.a.j e.Kr p.Kr",
        starters: "see need ta tema nad nemad ma mina me meie sa sina te teie siin seal kui sest kuigi aga ja või ning ka siis nüüd täna eile \
                   homme kus mis kes millal miks kuidas kas ei on oli olid kõik paljud igaüks võib-olla kahjuks lisaks hiljem",
        conjunctions: "ja aga või ning et sest kuigi kui kes mis",
        ordinals: Ordinals::Lowercase,
        ..Rules::EMPTY
    },
    Rules {
        codes: "pl szl csb",
        never: "dr Dr prof Prof mgr Mgr inż Inż hab doc ks Ks bp Bp abp św Św p P gen Gen płk kpt por mjr mec red ul al pl os np m.in tzn tj tzw \
                ang niem łac ros wł zob ww jw br ub bm woj pow gm ws św.p śp h.c lek med dyr zast przyp",
        numeric: "nr Nr s str t rozdz rys tab art par ust pkt poz tel godz w § vol",
        weak: "r im ok m.n.p.m s.a S.A sp.z.o.o o.o Inc Ltd Co Corp mln mld tys zł gr min wg jr",
        strong: "itd itp etc in p.n.e n.e",
        starters: "to ten ta te ci on ona ono oni one ja ty my wy w we na z ze do od po przed przy pod nad dla bez o u za i a ale lub \
                   albo więc jednak także też potem teraz dziś dzisiaj wczoraj jutro tam tu tutaj gdy kiedy gdzie co kto jak dlaczego \
                   czy jeśli jeżeli ponieważ chociaż choć że który która nie tak wszyscy wszystko wiele każdy każda był była było \
                   były jest są ma mają może musi niestety ponadto dlatego następnie później jego jej ich mój moja nasz",
        conjunctions: "i a ale lub albo oraz że gdy kiedy gdzie jeśli ponieważ chociaż choć który która które więc żeby aby",
        ordinals: Ordinals::Lowercase,
        ..Rules::EMPTY
    },
    Rules {
        codes: "cs",
        never: "dr Dr Mgr Ing Bc MUDr JUDr PhDr RNDr MVDr ThDr prof Prof doc Doc p pí sv např mj tj tzn tzv resp cca ca popř příp srov vč \
                roz angl něm lat řec red gen plk kpt por ul tř zvl ev fr arch akad odb o.p.a ř zejm max min zn",
        numeric: "č čís s str obr tab kap odst čl par tel roč hod §",
        weak: "nám s.r.o a.s o.p.s Inc Ltd Co Corp mil mld tis r st ml jr Sb hl.m",
        strong: "atd apod aj etc atp př.n.l n.l",
        starters: "to ten ta ty ti on ona ono oni já my vy v ve na z ze do od po před při pod nad pro bez o u za i a ale nebo tak \
                   však také pak teď dnes včera zítra tam tady zde když kdy kde co kdo jak proč zda jestli jestliže protože ačkoli \
                   že který která ne ano všichni všechno mnoho každý byl byla bylo byli je jsou má mají může musí bohužel navíc proto \
                   potom později jeho její jejich můj naše náš podle během mezi s se si jen už ještě",
        conjunctions: "a i ale nebo že když kdy protože ačkoli který která které proto aby zatímco",
        ordinals: Ordinals::Lowercase,
        ..Rules::EMPTY
    },
    Rules {
        codes: "sk",
        never: "dr Dr Mgr Ing Bc MUDr JUDr PhDr RNDr prof Prof doc Doc p sv napr tj tzn tzv resp cca ca príp porov vrát ul gen plk kpt angl nem lat \
                max min vč",
        numeric: "č s str obr tab kap ods čl tel roč hod §",
        weak: "nám s.r.o a.s Inc Ltd Co Corp mil mld tis r st ml jr Zb",
        strong: "atď a.i apod pod etc pred.n.l n.l",
        starters: "to ten tá tie on ona ono oni ja my vy v vo na z zo do od po pred pri pod nad pre bez o u za i a ale alebo tak \
                   však tiež potom teraz dnes včera zajtra tam tu keď kedy kde čo kto ako prečo či ak pretože hoci že ktorý nie áno \
                   všetci všetko veľa každý bol bola bolo boli je sú má majú môže musí bohužiaľ navyše preto neskôr jeho jej ich môj \
                   náš podľa počas medzi s sa si len už ešte",
        conjunctions: "a i ale alebo že keď pretože hoci ktorý ktorá ktoré preto aby",
        ordinals: Ordinals::Lowercase,
        ..Rules::EMPTY
    },
    Rules {
        codes: "sl hr bs",
        never: "dr Dr mr Mr mag Mag prof Prof doc g gđa gdin gđica inž ing dipl sv npr tj tzv oz ok ul npor gen ur lat engl njem nem fran tal usp \
                prim akad izv v.d m.a odv univ t.i t.j pok o.g vlč fra",
        numeric: "br št str tab pogl čl st tel knj toč § vol",
        weak: "ga d.o.o d.d Inc Ltd Co Corp mil mlrd tis god r l ml jr",
        strong: "itd ipd sl etc pr.Kr po.Kr pr.n.št n.št",
        starters: "to ta ti te on ona ono oni ja jaz mi vi v u na z s iz do od po pred pri pod nad za bez o i in a ali pa no ter \
                   tako također tudi potem zatem onda sada zdaj danas danes jučer včeraj sutra jutri tamo tam ovdje tukaj kad ko kada \
                   gdje kje što kaj tko kdo kako zašto zakaj je li ako če jer ker iako čeprav da koji ki ne da svi vsi mnogi svaki bio \
                   bila bilo su so ima imaju može mora nažalost žal osim zato kasnije njegov njezin njihov moj naš ovo ova ovaj",
        conjunctions: "i in a ali pa no ter da kad ko kada jer ker iako čeprav koji koja koje ki ako če",
        ordinals: Ordinals::Lowercase,
        ..Rules::EMPTY
    },
    Rules {
        codes: "sr mk me",
        never: "др Др мр проф Проф доц инж г гђа св нпр тј тзв ул бр.а акад ген пук енгл лат нем о.г dr Dr mr prof \
                Prof doc inž g gđa sv npr tj tzv ul",
        numeric: "бр стр таб погл чл тел т br str tab čl tel §",
        weak: "д.о.о а.д мил млрд хиљ год р мл d.o.o a.d god ml Inc Ltd",
        strong: "итд сл etc п.н.е н.е",
        starters: "то та тај ти он она оно они ја ми ви у на с са из до од по пре при под над за без о и а али или па но тако такође онда \
                   потом сада сега данас денес јуче вчера сутра тамо овде када кога где каде шта што ко кој како зашто да ли ако јер \
                   иако не сви многи сваки био била било је су има може мора нажалост зато касније његов моја наш ово ова овај во од \
                   to on ona oni ja mi u na i a ali pa sada danas kada gde šta ko kako zašto ovo",
        conjunctions: "и а али или па да када јер иако који која које ако i a ali da kada jer koji",
        ordinals: Ordinals::Lowercase,
        ..Rules::EMPTY
    },
    Rules {
        codes: "hu",
        never: "dr Dr prof Prof id ifj özv Sz Szt szt pl ill ún kb vö ld l uo ui i.m St gr br alez ezr tbk hdgy szds igh vez főv nb lat ang \
                ném fr or ered átv biz közp tkp dipl",
        numeric: "sz o old fej fejl tábl bek tel köt évf u krt jan febr márc ápr máj jún júl aug szept okt nov dec § ker em",
        weak: "Kft Rt Zrt Nyrt Bt Inc Ltd Co Corp mrd",
        strong: "stb etc s.b.t s.a.t Kr.e Kr.u i.e i.sz",
        starters: "a az ez egy ő ők én mi ti te ezek azok itt ott most ma tegnap holnap akkor aztán azután majd amikor mikor ahol hol mi \
                   mit ki kik miért hogyan hogy ha mert bár és de vagy is már még nem igen mind minden sok néhány volt van vannak lesz \
                   lehet kell talán sajnos ráadásul ezért később először végül szerinte közben ugyanakkor viszont azonban",
        conjunctions: "és de vagy hogy mert bár ha amikor aki amely ami ahol míg",
        ordinals: Ordinals::Lowercase,
        ..Rules::EMPTY
    },
    Rules {
        codes: "ro mo",
        never: "dl Dl dna Dna d-na D-na dra d-ra dr Dr prof Prof ing Ing conf lect acad Gen col Sf sf str Str bd Bd ex de.ex cca aprox \
                cf vs lt cpt av adj dvs dlui",
        numeric: "nr Nr pag p pp art alin cap fig vol tel lit pct ian feb febr mart apr iun iul aug sept oct noiem nov \
                  dec sec tab §",
        weak: "S.A S.R.L Inc Ltd Co Corp mil mld jud jr S.U.A ș.a",
        strong: "etc ș.a.m.d ş.a.m.d a.Chr d.Chr î.Hr d.Hr î.e.n e.n",
        starters: "acest această aceste acești el ea ei ele eu tu noi voi un o în la de din cu pe pentru prin după înainte până între sub \
                   fără și iar dar sau însă deci apoi acum astăzi azi ieri mâine aici acolo când unde ce cine cum care dacă deși \
                   pentru că nu da toți toate mulți fiecare era este sunt a au avea are poate trebuie din păcate totuși astfel \
                   lui lor meu noastră mai nimeni nimic se s-a îi îl",
        conjunctions: "și iar dar sau însă că când dacă deși care unde deoarece ca să",
        ..Rules::EMPTY
    },
    Rules {
        codes: "ru",
        never: "г-н г-жа гг гр.а проф Проф акад доц д-р канд инж ген кап лейт ул пр-т пер пл наб пос дер св прп т.е т.к т.н т.о т.ч \
                напр ср.а англ нем фр лат греч ит исп рус жарг разг устар обл о оз прим мин.а макс зам зав дир ред изд.а \
                д-ра мл.а тов ст.а соч собр об.а под.ред прибл ок",
        numeric: "№ с стр рис табл гл п пп ст ч т тт вып кн разд § д кв корп оф тел янв февр фев апр авг сент окт нояб дек илл",
        weak: "г гг.а в вв руб коп млн млрд тыс чел экз шт км.а мин сек час р л мл ст.л ч.л долл У.С США.а",
        strong: "т.д т.п др пр проч н.э до.н.э",
        starters: "в во на с со из из-за к ко о об от по под при про для до за у без через над между после перед и а но или да же то это этот \
                   эта эти тот та те он она оно они я ты мы вы его её ее их мой наш ваш свой кто что где когда как почему зачем какой какая \
                   сколько если хотя пока чтобы так такой также тоже потом затем теперь сейчас сегодня вчера завтра здесь там тогда \
                   не ни нет вот все всё весь вся каждый многие некоторые был была было были есть будет может можно нужно надо однако \
                   поэтому кроме несмотря согласно наконец впрочем конечно возможно один одна уже ещё еще только никто ничего",
        conjunctions: "и а но или что чтобы если когда хотя потому который которая которое которые где пока поскольку однако либо",
        ..Rules::EMPTY
    },
    Rules {
        codes: "uk be rue",
        never: "п пп.а пані.а проф Проф акад доц д-р канд інж ген кап ім просп пров пл наб св прп т.зв т.ч т.к напр див пор англ нім фр лат рос \
                заст зав дир ред о оз обл гр праф імя.а вул завул г.зн напр.а т.е см гл.а",
        numeric: "№ с стор рис табл гл ч т тт вип кн розд § буд кв корп тел ст.а мал",
        weak: "р рр в ст грн коп млн млрд тис чол прим г гг вв хв год с.г руб",
        strong: "т.д т.п ін інш г.д да.т.п н.е до.н.е",
        starters: "у в на з із зі до від по під при про для за без через над між після перед і й та а але або чи це цей ця ці той він вона \
                   воно вони я ти ми ви його її їх мій наш хто що де коли як чому який яка скільки якщо хоча поки щоб так також теж потім \
                   тепер зараз сьогодні вчора завтра тут там тоді не ні ось все всі кожен багато деякі був була було були є буде може треба \
                   однак тому крім згідно нарешті звісно можливо один вже ще лише ніхто нічого ён яна яны гэта мы дзе калі што хто але",
        conjunctions: "і й та а але або чи що щоб якщо коли хоча тому який яка яке які де поки оскільки",
        ..Rules::EMPTY
    },
    Rules {
        codes: "bg",
        never: "г-н г-жа г-ца проф Проф акад доц д-р Д-р инж арх ген кап ул бул пл св т.е т.нар напр вж сл срв англ нем фр лат рус им зам ок о \
                обл общ кв.а гл.ас",
        numeric: "№ с стр фиг табл гл чл ал т тел бр § ет ап бл вх кв",
        weak: "пр г гг в вв лв ст млн млрд хил мин сек ч мл",
        strong: "т.н и.др др т.д пр.Хр сл.Хр пр.н.е н.е",
        starters: "в във на с със от до за по под при над без през между след преди и а но или да това този тази тези той тя то те аз ти ние вие \
                   неговият нейният техният кой кога къде как защо какво какъв колко ако въпреки докато че така също после сега днес вчера утре \
                   тук там тогава не няма има ето всички всичко всеки много някои беше бяха е са ще може трябва обаче затова освен според \
                   накрая разбира вероятно един една вече още само никой нищо",
        conjunctions: "и а но или че да ако когато въпреки защото който която което които където докато",
        ..Rules::EMPTY
    },
    Rules {
        codes: "el",
        never: "κ κκ Κ κα δρ Δρ καθ Καθ πρβλ βλ π.χ λ.χ δηλ Αγ αγ Στρ στρ Λεωφ λεωφ οδ.α περ μτφρ υπ αρχ Σεβ Πρωθ \
                κτήτ.α Ι.Μ ιδ τ.μ.α σχετ",
        numeric: "αρ αριθ σελ σ κεφ εικ πίν τόμ τ άρθ παρ τηλ Ιαν Φεβ Μαρ Απρ Ιουν Ιουλ Αυγ Σεπ Σεπτ Οκτ Νοε Νοεμ Δεκ",
        weak: "Α.Ε Ε.Π.Ε Η.Π.Α εκ εκατ δισ χιλ Inc Ltd",
        strong: "κ.λπ κλπ κ.ά κ.α κτλ κ.τ.λ κ.ο.κ π.μ μ.μ π.Χ μ.Χ",
        starters: "ο η το οι τα τον την του της των ένας μια μία ένα αυτός αυτή αυτό αυτοί αυτά εγώ εσύ εμείς εσείς εκείνος στο στη στην στον \
                   στα στις σε με από για προς κατά μετά πριν χωρίς ως και αλλά ή όμως ωστόσο έτσι επίσης τότε τώρα σήμερα χθες χτες αύριο \
                   εδώ εκεί όταν πού πότε πώς γιατί τι ποιος ποια πόσο αν εάν επειδή ενώ αφού ότι που δεν μην όχι ναι όλοι όλα κάθε \
                   πολλοί ήταν είναι είχε έχει θα να μπορεί πρέπει ίσως δυστυχώς επιπλέον λοιπόν σύμφωνα παρά δύο",
        conjunctions: "και αλλά ή όμως ότι όταν επειδή ενώ αν που ώστε γιατί αφού",
        marks: ";",
        ..Rules::EMPTY
    },
    Rules {
        codes: "lt",
        never: "dr Dr prof Prof doc akad inž p pan pvz t.y vad žr plg gen plk kpt šv Šv g pl al ang lot vok pr vnt liet įsk",
        numeric: "nr Nr psl p.psl pav lent str sk tel § kab",
        weak: "m m.e r sav rj aps mln mlrd tūkst val min d",
        strong: "kt etc t.t pr.Kr po.Kr",
        starters: "tai tas ta tie jis ji jie jos aš tu mes jūs šis ši šie čia ten dabar šiandien vakar rytoj tada kai kada kur kas kaip kodėl \
                   ar jei jeigu nes nors ir bet arba o taip pat po prieš per nuo iki su be už dėl apie į iš ne visi viskas daug \
                   kiekvienas buvo yra bus gali reikia deja todėl vėliau jo jos mūsų pagal",
        conjunctions: "ir bet arba o kad kai nes nors jei kuris kuri kurie",
        ordinals: Ordinals::Lowercase,
        ..Rules::EMPTY
    },
    Rules {
        codes: "lv ltg",
        never: "dr Dr prof Prof doc akad inž piem t.i t.s sk sal gen plkv kpt sv Sv ģen angl lat vāc apm resp",
        numeric: "nr Nr plkst lpp att tab tālr p pk janv febr apr jūn jūl aug sept okt nov dec §",
        weak: "g gs milj mljrd tūkst min st",
        strong: "u.c utt u.tml tml u.t.t etc p.m.ē m.ē",
        starters: "tas tā tie tās viņš viņa viņi es tu mēs jūs šis šī šie šeit tur tagad šodien vakar rīt tad kad kur kas kā kāpēc vai ja jo \
                   lai gan un bet arī pēc pirms pa no līdz ar bez par uz ne visi viss daudz katrs bija ir būs var vajag diemžēl tāpēc \
                   vēlāk viņa mūsu saskaņā",
        conjunctions: "un bet vai ka kad jo ja kurš kura kas lai",
        ordinals: Ordinals::Lowercase,
        ..Rules::EMPTY
    },
    Rules {
        codes: "sq",
        never: "dr Dr prof Prof z zj znj p.sh d.m.th dmth inxh Shën rr gjen kol",
        numeric: "nr Nr f fq art vëll tel",
        weak: "sh.a sh.p.k mln mld",
        strong: "etj p.e.s e.s",
        starters: "ai ajo ata ato unë ti ne ju ky kjo këta në nga me për te tek dhe por ose kur ku çfarë kush si pse nëse sepse sot dje nesër tani \
                   aty këtu nuk po jo të gjithë shumë ishte është janë ka kanë do mund duhet pas para",
        conjunctions: "dhe por ose se kur nëse sepse që",
        ..Rules::EMPTY
    },
    Rules {
        codes: "ga gd cy",
        never: "Dr Mr Mrs Prof St m.sh i.e e.g Uas Urr Msgr",
        numeric: "lch uimh Uimh tud rhif t p caib",
        weak: "R.Ch I.C Teo Cyf Inc Ltd",
        strong: "srl ayyb ac.ati a.y.b",
        starters: "tá bhí is an na níl sé sí siad mé tú ach agus i ar ag go do mae roedd yr y a o ond yn ar ni nid \
                   beth pwy tha bha",
        conjunctions: "agus ach nó go a ond neu bod mar",
        ..Rules::EMPTY
    },
    Rules {
        codes: "mt",
        never: "Dr Prof Mr Mrs Onor eż p.eż San",
        numeric: "nru Nru paġ art kap",
        weak: "Q.K W.K Ltd",
        strong: "eċċ",
        starters: "",
        conjunctions: "u imma jew li meta għax",
        ..Rules::EMPTY
    },
    Rules {
        codes: "eo",
        never: "s-ro s-ino d-ro D-ro prof Prof ekz ekz-e t.e t.n k-do",
        numeric: "n-ro p paĝ ĉap",
        weak: "a.K p.K jc",
        strong: "ktp k.a k.s k.t.p",
        starters: "la li ŝi ĝi ili mi vi ni tio tiu ĉi en sur al de kun por kaj sed aŭ kiam kie kio kiu kiel kial se \
                   ĉar hodiaŭ hieraŭ",
        conjunctions: "kaj sed aŭ ke kiam se ĉar kiu kiuj",
        ..Rules::EMPTY
    },
];
